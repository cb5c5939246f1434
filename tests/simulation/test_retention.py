"""Old files go while everything else goes on and goes wrong: nothing that is kept is lost, what is
gone is told.
"""

from __future__ import annotations

import random

import pytest

from roquet.broker.config.store import FlushDisk
from roquet.client.consumer import Consumer
from roquet.protocol.records.message import HALF_TOPIC, SCHEDULE_TOPIC
from roquet.protocol.records.record import decode
from tests.simulation.clocks import set_clocks
from tests.simulation.cluster import CONSUMER, Cluster
from tests.simulation.delay_world import MINUTES, delay_world, live_through, serving
from tests.simulation.delays import LEVELS, DelayWorld
from tests.simulation.gone import check_gone_is_said
from tests.simulation.network import LinkQuality
from tests.simulation.nodes import NAME_SERVER_PORT, BrokerNode
from tests.simulation.retention import PASS_S, keep_for, keep_while_there_is_room, let_drive_fill
from tests.simulation.transactions import COMMIT, TransactionWorld
from tests.simulation.transactions import TOPIC as PAYMENTS
from tests.simulation.troubles import (
    REPLACING,
    TROUBLES,
    Trouble,
    crash_the_master,
    end_master,
    some_brokers,
)

MASTER, SLAVE = "sync-master", "slave"
ROUNDS = 3
SECONDS_MAX = 30.0
HOUR_S = 3600.0


def go_through(cluster: Cluster, troubles: tuple[Trouble, ...]) -> None:
    """Each trouble comes while files go, at the master or at a slave or at both."""
    for _ in range(ROUNDS):
        cluster.send(80)
        cluster.run_for(PASS_S)
        cluster.send(40)
        cluster.run_for_up_to(10)
        trouble = cluster.chance.choice(troubles)
        cluster.sim.note("trouble", trouble.__name__)
        trouble(cluster)
        cluster.send(20)
        cluster.run_for_up_to(SECONDS_MAX)
        cluster.settle()
    cluster.check_everything()
    assert cluster.sets[0].deleted_to, "files went"
    for name in cluster.brokers:
        check_gone_is_said(cluster, name)


@pytest.mark.shares_histories(2, 60)
def test_files_go_at_once_amid_troubles(seed: int) -> None:
    cluster = Cluster(seed, *some_brokers(seed))
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    with cluster:
        go_through(cluster, TROUBLES)


@pytest.mark.shares_histories(12, 30)
def test_files_go_from_drives_that_fill_amid_troubles(seed: int) -> None:
    cluster = Cluster(seed, *some_brokers(seed), flush=FlushDisk.SYNC_FLUSH)
    keep_while_there_is_room(cluster.brokers.values(), cluster.sim.chance("retention"))
    with cluster:
        for node in cluster.brokers.values():
            let_drive_fill(node, cluster.chance.choice((4, 8, 16)))
        go_through(cluster, (*TROUBLES, crash_the_master, crash_the_master))


@pytest.mark.shares_histories(22, 60)
def test_files_go_while_masters_are_replaced(seed: int) -> None:
    cluster = Cluster(seed, *some_brokers(seed), flush=FlushDisk.SYNC_FLUSH)
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    with cluster:
        go_through(cluster, REPLACING)


@pytest.mark.shares_histories(14, 60)
def test_a_slave_catches_up_while_its_master_deletes(seed: int) -> None:
    """It is left behind only if the master has deleted what it lacks."""
    cluster = Cluster(seed, MASTER, SLAVE)
    goes_at_once = seed // 60 % 2 == 1
    if goes_at_once:
        keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    else:
        keep_while_there_is_room(cluster.brokers.values(), cluster.sim.chance("retention"))
    with cluster:
        if not goes_at_once:
            let_drive_fill(cluster.brokers[MASTER], cluster.chance.choice((4, 8)))
        cluster.run_for(cluster.chance.uniform(0, PASS_S))
        cluster.send(100)
        cluster.run_for_up_to(2)
        cluster.kill(SLAVE)
        lacks = cluster.brokers[SLAVE].log_end
        assert lacks is not None
        cluster.run_for_up_to(20)
        cluster.slow_down(LinkQuality((0.01, 0.5), 0.1, (0.5, 4.0), window=4_096))
        cluster.start(SLAVE)
        cluster.send(60)
        cluster.run_for(PASS_S)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped or lacks < cluster.broker(MASTER).store.log.start
        check_gone_is_said(cluster, MASTER)


@pytest.mark.shares_histories(34, 60)
def test_a_group_whose_place_is_gone_goes_on_with_what_is_kept(seed: int) -> None:
    cluster = Cluster(seed, MASTER, SLAVE)
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    with cluster:
        cluster.kill(CONSUMER)
        before = cluster.acknowledged()
        cluster.produce(120)
        cluster.run_for(2 * PASS_S)
        gone = {
            key
            for key in cluster.acknowledged() - before
            if key not in cluster.readable_from(MASTER)
        }
        assert gone
        cluster.send(20)
        cluster.start(CONSUMER)
        cluster.settle()
        assert not gone & cluster.received()
        cluster.check_everything()
        check_gone_is_said(cluster, MASTER)


@pytest.mark.shares_histories(44, 60)
def test_delayed_messages_that_are_kept_come_though_others_are_gone(seed: int) -> None:
    """They wait for up to 3 minutes in files that go sooner."""

    def prepare(node: BrokerNode) -> None:
        keep_for([node], random.Random(f"retention {seed}"), hours=0)

    with delay_world(seed, FlushDisk.SYNC_FLUSH, MINUTES, prepare) as (world, node):
        starts = LogStarts(world, node)
        for _ in range(ROUNDS):
            world.sender.send(120, 1)
            live_through(world, node, ("stop", "kill", "crash"), 2, 90)
            world.sim.run_until(lambda: not world.sender.is_sending, 600)
            world.sim.run_for(200)
            late, gone = starts.not_come()
            assert not late, f"they were kept, and did not come: {sorted(late)}"
            if gone:  # lives that are short may each end before old files are looked for twice
                break
        assert gone, "of some the file was gone before they were due"
        delays, store = serving(node).parts.tables.delay_offsets, serving(node).store
        for level in MINUTES[1:]:
            assert delays.next_offset(level) == store.max_offset(SCHEDULE_TOPIC, level - 1), (
                "nothing waits any more"
            )


class LogStarts:
    """Invariant: `seen` are the times, in ms, and where the log of a broker began then; both ascend."""

    def __init__(self, world: DelayWorld, node: BrokerNode) -> None:
        self._world = world
        self._node = node
        self.seen = [(0, 0)]
        world.sim.check_always(self._look)

    def _look(self) -> None:
        broker = self._node.broker
        if broker is not None and broker.store.log.start > self.seen[-1][1]:
            self.seen.append((self._node.host.now_ms(), broker.store.log.start))

    def not_come(self) -> tuple[set[str], set[str]]:
        """Acknowledged messages that never came: those that were kept until they were due, and the
        others.
        """
        sender = self._world.sender
        late: set[str] = set()
        gone: set[str] = set()
        for key, place in sender.places.items():
            sent = sender.sent[key]
            due_ms = sent.began_ms + (LEVELS.ms[sent.level - 1] if sent.level else 0)
            last_ms = self._world.service.late_after(due_ms)
            start = max(start for ms, start in self.seen if ms <= last_ms)
            if key not in self._world.desk.received:
                (late if place >= start else gone).add(key)
        return late, gone


@pytest.mark.shares_histories(40, 60)
def test_an_hour_of_a_wall_clock_that_is_set_is_an_hour_all_the_same(seed: int) -> None:
    cluster = Cluster(seed, "async-master")
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=1)
    with cluster:
        cluster.send(60)
        set_clocks(cluster.sim, [node.host for node in cluster.brokers.values()], 6, 600)
        cluster.run_for(max(0.0, HOUR_S - cluster.sim.now_s))
        assert not cluster.sets[0].deleted_to
        cluster.run_for(300)
        assert cluster.sets[0].deleted_to
        cluster.settle()
        cluster.check_everything()


@pytest.mark.shares_histories(54, 60)
def test_transactions_end_though_their_half_messages_are_gone(seed: int) -> None:
    """Most are asked about before their half message goes, which writes it again. The others end as
    rolled back.
    """
    world = TransactionWorld(seed)
    keep_while_there_is_room([world.master], world.chance)
    world.check_each(world.chance.choice((20_000, 40_000)))
    with world:
        teller, halves = Teller(world), HalfMessages(world)
        world.work(5, 10)
        world.sim.run_for(60)
        let_drive_fill(world.master, 2)
        for _ in range(3):
            world.work(40, 200)
            end_master(world, world.chance.choice(("kill", "crash", "stop")))
        world.work(40, 200)
        world.sim.run_for(400)
        world.master.host.drive.capacity = None
        world.settle()
        committed = world.database.keys(COMMIT)
        assert teller.received <= committed, "what came was committed"
        assert committed - teller.received <= halves.gone, (
            "what was committed came, or its half message was gone"
        )
        assert teller.received


class Teller:
    """Invariant: `received` are the keys of all messages that came."""

    def __init__(self, world: TransactionWorld) -> None:
        self.received: set[str] = set()
        self._name_server = world.name_server.host.address
        self._host = world.sim.host("10.0.5.1")
        self._host.start(self._consume)

    async def _consume(self) -> None:
        server, runtime = f"{self._name_server}:{NAME_SERVER_PORT}", self._host.runtime()
        async with Consumer(
            server, "tellers", PAYMENTS, "earliest", client_id="teller", runtime=runtime
        ) as consumer:
            async for message in consumer:
                self.received.add(message.body.decode())


class HalfMessages:
    """Invariant: `gone` are the keys whose transactions were open when their newest half message
    went.
    """

    def __init__(self, world: TransactionWorld) -> None:
        self.gone: set[str] = set()
        self._world = world
        self._keys: dict[int, str] = {}
        self._seen = (0, 0)
        world.sim.check_always(self._look)

    def _look(self) -> None:
        broker = self._world.master.broker
        queue = None if broker is None else broker.store.queues.known(HALF_TOPIC, 0)
        if broker is None or queue is None or (queue.min_offset, queue.max_offset) == self._seen:
            return
        begin = max(queue.min_offset, min(self._seen[1], queue.max_offset))
        for offset in range(begin, queue.max_offset):
            entry = queue.entry(offset)
            assert entry is not None
            self._keys[offset] = decode(broker.store.log.record_at(entry[0]) or b"").body.decode()
        self._seen = queue.min_offset, queue.max_offset
        gone = [
            half.offset for half in broker.parts.halves.open.all() if half.offset < queue.min_offset
        ]
        self.gone.update(self._keys[offset] for offset in gone)
