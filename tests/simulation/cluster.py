"""A whole cluster in one process on virtual time: real servers and clients, and every way they can be hurt.

    with Cluster(seed, "sync-master", "slave") as cluster:
        cluster.send(100)
        cluster.run_for(1)
        cluster.crash("sync-master")
        assert cluster.acknowledged() <= cluster.readable_from("slave")
        cluster.settle()
        cluster.check_everything()

What differs between two seeds beside the world itself (sizes of files and chunks, periods) is drawn here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from roquet.broker.config import BrokerConfig
from roquet.broker.server import Broker
from roquet.broker.store_settings import BrokerRole, FlushDisk, StoreSettings
from tests.simulation import checks
from tests.simulation.clients import TOPIC, ConsumerNode, ProducerNode
from tests.simulation.disk import DriveSpeed
from tests.simulation.loop import current_process
from tests.simulation.network import LinkQuality
from tests.simulation.nodes import BROKER_NAME, NAME_SERVER_PORT, BrokerNode, NameServerNode, with_role
from tests.simulation.reading import read_everything
from tests.simulation.simulation import Host, Simulation

NAME_SERVER: Final = "name-server"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
READER_ADDRESS: Final = "10.0.9.1"
MASTER_ROLES: Final = {"sync-master": BrokerRole.SYNC_MASTER, "async-master": BrokerRole.ASYNC_MASTER}
QUEUES: Final = 3
START_S_MAX: Final = 60.0
SETTLE_S_MAX: Final = 300.0
HEALTHY_DRIVE: Final = DriveSpeed()
HEALTHY_LINK: Final = LinkQuality()


class Cluster:
    """One master, its slaves, a name server, a producer and the members of a group, each on a host of its own.

    Keeps: every check holds after every event, and no exception was swallowed by a log.

    :param names: `sync-master` or `async-master` first, then slaves by any name, in the order of their broker ids.
    :param consumers: how many members the group has: `consumer`, `consumer-2` ...
    """

    def __init__(
        self,
        seed: int,
        *names: str,
        flush: FlushDisk = FlushDisk.ASYNC_FLUSH,
        consumers: int = 1,
        always: Sequence[checks.Check] = checks.ALWAYS,
    ) -> None:
        self.sim = Simulation(seed)
        self.chance = self.sim.chance("cluster")
        self.name_server = NameServerNode(self.sim.host("10.0.0.1"))
        self.flush = flush
        self.brokers = self._make_brokers(names)
        server = f"{self.name_server.host.address}:{NAME_SERVER_PORT}"
        self.producer = ProducerNode(self.sim.host("10.0.2.1"), server)
        self.consumers = {
            CONSUMER if number == 1 else f"{CONSUMER}-{number}": ConsumerNode(self.sim.host(f"10.0.3.{number}"), server)
            for number in range(1, consumers + 1)
        }
        self.words_may_come_late = consumers > 1
        """Whether something was done to the network, or to a consumer, after which old packets may still arrive."""
        self.wiped: list[str] = []
        """The slaves whose stores were deleted, because they could not follow their master any more."""
        self.began_anew: set[str] = set()
        """The slaves that may lack what is older than their master's last file: wiped ones, and those whose power
        failed, maybe before anything of their log was on the drive."""
        self._always = always
        self._swallowed = SwallowedErrors()

    def _make_brokers(self, names: Sequence[str]) -> dict[str, BrokerNode]:
        config = self._drawn_config()
        nodes: dict[str, BrokerNode] = {}
        for broker_id, name in enumerate(names):
            address = f"10.0.1.{broker_id + 1}"
            role = MASTER_ROLES.get(name, BrokerRole.SLAVE)
            assert (broker_id == 0) == (role is not BrokerRole.SLAVE), "one master, first of all"
            nodes[name] = BrokerNode(
                name, self.sim.host(address), with_role(config, role, broker_id, address, self.flush)
            )
        return nodes

    def _drawn_config(self) -> BrokerConfig:
        """Small files, so that they roll, and everything else that a seed may differ in."""
        draw = self.chance.choice
        config = BrokerConfig()
        return replace(
            config,
            namesrv_addr=f"{self.name_server.host.address}:{NAME_SERVER_PORT}",
            default_topic_queue_nums=QUEUES,
            register_name_server_period=draw((10_000, 30_000)),
            store=StoreSettings(
                mapped_file_size_commit_log=draw((8_192, 16_384, 65_536)),
                mapped_file_size_consume_queue=20 * draw((10, 50, 1_000)),
                max_hash_slot_num=draw((10, 100)),
                max_index_num=draw((50, 1_000)),
                flush_consume_queue_thorough_interval=draw((2_000, 10_000, 60_000)),
                flush_commit_log_thorough_interval=draw((1_000, 10_000)),
            ),
            replication=replace(config.replication, ha_transfer_batch_size=draw((700, 4_096, 32_768))),
        )

    # life

    def __enter__(self) -> Self:
        self.sim.__enter__()
        self._swallowed.__enter__()
        try:
            self._start()
        except BaseException as error:
            self._swallowed.__exit__()
            self.sim.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._swallowed.__exit__()
        self.sim.__exit__(kind, error, trace)

    def _start(self) -> None:
        """Until messages are acknowledged, consumed and copied."""
        self.sim.check_always(self._swallowed.check)
        for check in self._always:
            self.sim.check_always(check(self))
        self.name_server.start()
        self.sim.run_until(lambda: self.name_server.is_serving, START_S_MAX)
        for node in self.brokers.values():
            node.start()
            self.sim.run_for(self.chance.uniform(0.05, 0.5))
        self._wait_until_all_follow(START_S_MAX)
        self.producer.start()
        for consumer in self.consumers.values():
            consumer.start()
        self.produce(QUEUES)
        self.sim.run_until(self._is_topic_everywhere, START_S_MAX)
        self.sim.run_until(self._all_received, START_S_MAX)

    def _is_topic_everywhere(self) -> bool:
        return all(node.broker is not None and TOPIC in node.broker.topics.to_table().topics for node in self._nodes)

    # who is who

    @property
    def _nodes(self) -> list[BrokerNode]:
        return list(self.brokers.values())

    @property
    def master(self) -> BrokerNode:
        return self._nodes[0]

    @property
    def slaves(self) -> list[BrokerNode]:
        return self._nodes[1:]

    @property
    def slave_names(self) -> set[str]:
        return {slave.name for slave in self.slaves}

    def broker(self, name: str) -> Broker:
        """The broker that serves under this name."""
        broker = self.brokers[name].broker
        assert broker is not None, f"{name} does not serve"
        return broker

    def host(self, name: str) -> Host:
        if name in self.brokers:
            return self.brokers[name].host
        if name in self.consumers:
            return self.consumers[name].host
        return {NAME_SERVER: self.name_server.host, PRODUCER: self.producer.host}[name]

    @property
    def names(self) -> list[str]:
        """Every host there is."""
        return [NAME_SERVER, *self.brokers, PRODUCER, *self.consumers]

    # messages

    def send(self, count: int) -> None:
        """Begin to send so many messages; the world goes on in `run_for` and the like."""
        self.producer.send(count)

    def produce(self, count: int) -> None:
        """Send so many messages and wait until each has its answer, whatever that is."""
        self.send(count)
        self.wait_for_answers()

    def wait_for_answers(self) -> None:
        self.sim.run_until(lambda: not self.producer.pending, SETTLE_S_MAX)

    def acknowledged(self) -> set[str]:
        """The keys of all messages that were answered SEND_OK."""
        return set(self.producer.acknowledged)

    def received(self) -> set[str]:
        """The keys of all messages that the group got."""
        return {key for consumer in self.consumers.values() for key in consumer.received}

    def readable_from(self, name: str) -> set[str]:
        """The keys of all messages that this broker hands out now."""
        address = self.brokers[name].address
        reader = self.sim.host(READER_ADDRESS)
        keys = reader.call(lambda: read_everything(address, BROKER_NAME, QUEUES))
        reader.kill()
        return keys

    # faults

    def run_for(self, seconds: float) -> None:
        self.sim.run_for(seconds)

    def run_for_up_to(self, seconds: float) -> None:
        """Stop at a moment that only the seed knows."""
        self.run_for(self.chance.uniform(0, seconds))

    def crash(self, name: str, silently: bool = False) -> None:
        """The power fails: what was never synced is gone."""
        self.began_anew |= {name} & self.slave_names
        self.host(name).crash(silently)

    def lose_power_soon(self, name: str, changes_max: int = 40) -> None:
        """The power fails at one of the next changes to the drive, in the middle of whatever is going on then."""
        self.began_anew |= {name} & self.slave_names
        self.host(name).drive.lose_power_after(self.chance.randrange(changes_max))

    def lose_power_by_now(self, name: str) -> None:
        """After `lose_power_soon`: if it has not happened yet, it happens now."""
        if self.host(name).is_running:
            self.crash(name)

    def kill(self, name: str) -> None:
        """The process dies, its files keep what was written."""
        self.words_may_come_late |= name in self.consumers
        self.host(name).kill()

    def stop(self, name: str) -> None:
        """The broker ends in an orderly way."""
        self.brokers[name].stop()

    def wipe(self, name: str) -> None:
        """End a slave and delete its store."""
        self.brokers[name].wipe()
        self.wiped.append(name)
        self.began_anew.add(name)

    def start(self, name: str) -> None:
        """Start what is down."""
        if name == NAME_SERVER:
            self.name_server.start()
        elif name in self.consumers:
            self.consumers[name].start()
        else:
            self.brokers[name].start()

    def restart(self, name: str) -> None:
        """Start what is down and wait until it serves."""
        self.start(name)
        self.wait_until_serving(name)

    def wait_until_serving(self, name: str) -> None:
        if name == NAME_SERVER:
            self.sim.run_until(lambda: self.name_server.is_serving, START_S_MAX)
        elif name in self.brokers:
            self.sim.run_until(lambda: self.brokers[name].broker is not None, START_S_MAX)

    def cut(self, a: str, b: str) -> None:
        """Reset every connection between two hosts."""
        self.words_may_come_late = True
        self.sim.network.cut(self.host(a).address, self.host(b).address)

    def half_open(self, a: str, b: str) -> None:
        """The connections between two hosts lose everything from now on, and tell nobody."""
        self.words_may_come_late = True
        self.sim.network.half_open(self.host(a).address, self.host(b).address)

    def partition(self, a: str, b: str, one_way: bool = False) -> None:
        """Nothing gets from `a` to `b`, nor back unless `one_way`."""
        self.words_may_come_late = True
        self.sim.network.partition(self.host(a).address, self.host(b).address, one_way)

    def isolate(self, name: str) -> None:
        """Nothing gets to this host or away from it."""
        self.words_may_come_late = True
        self.sim.network.isolate(self.host(name).address)

    def slow_down(self, quality: LinkQuality) -> None:
        """The whole network is like this from now on."""
        self.words_may_come_late = True
        self.sim.network.quality = quality

    def heal(self) -> None:
        """The network and the drives are well again."""
        self.sim.network.quality = HEALTHY_LINK
        self.sim.network.heal()
        for node in self._nodes:
            node.host.drive.speed = HEALTHY_DRIVE
            node.host.drive.trouble = None

    # quiet

    def settle(self) -> None:
        """Heal everything, start what is down, and wait until all is calm; a slave that says it cannot follow its
        master any more is wiped, as its operator would do.
        """
        self.heal()
        for name in self.names:
            if not self.host(name).is_running:
                self.start(name)
        self.wait_until_serving(NAME_SERVER)
        for name in self.brokers:
            self.wait_until_serving(name)
        self.wait_for_answers()
        self._wait_until_all_follow(SETTLE_S_MAX)
        self.sim.run_until(self._is_topic_everywhere, SETTLE_S_MAX)
        self.wait_until_all_received()

    def wait_until_all_received(self) -> None:
        """The group gets every acknowledged message."""
        self.sim.run_until(self._all_received, SETTLE_S_MAX)

    def _all_received(self) -> bool:
        return self.producer.acknowledged.keys() <= self.received()

    def _wait_until_all_follow(self, within_s: float) -> None:
        master = self.broker(self.master.name)
        while True:
            self.sim.run_until(lambda: all(self._is_settled(slave, master) for slave in self.slaves), within_s)
            misfits = [slave for slave in self.slaves if not slave.follows(master)]
            if not misfits:
                return
            for slave in misfits:
                self.wipe(slave.name)
                self.start(slave.name)

    def _is_settled(self, slave: BrokerNode, master: Broker) -> bool:
        """It has everything, or it will never have it."""
        return slave.does_not_fit(master) or slave.follows(master)

    def check_everything(self) -> None:
        """After `settle`: the logs are equal, nothing acknowledged is missing anywhere, all of it was consumed."""
        checks.check_quiet(self)


class SwallowedErrors(logging.Handler):
    """Exceptions that running programs only logged: they are failures all the same.

    Keeps: `errors` are those of processes that lived then.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[logging.LogRecord] = []

    def __enter__(self) -> Self:
        logging.getLogger("roquet").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("roquet").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process.get()
        if record.exc_info and (process is None or process.alive):
            self.errors.append(record)

    def check(self) -> None:
        if self.errors:
            record = self.errors[0]
            assert record.exc_info
            raise AssertionError(f"logged, not raised: {record.getMessage()}") from record.exc_info[1]
