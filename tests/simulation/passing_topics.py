"""An operator who makes topics, lets them be filled, and deletes them: what is gone must stay
gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from roquet.errors import RoquetError
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command, to_text
from roquet.protocol.remoting.refusals import checked
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from roquet.transport.channels import Channels
from tests.simulation.lasting import PASSING
from tests.simulation.simulation import Host

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

ADDRESS: Final = "10.0.5.9"
NAMES: Final = tuple(f"{PASSING}{number}" for number in range(4))
QUEUES: Final = 2
MESSAGES_MAX: Final = 12
PAUSE_S: Final = 0.3
CALL_MS: Final = 10_000


class PassingTopics:
    """Invariant: `gone` are the topics whose deletion a master has answered with success, and that
    nobody has made or filled since.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.gone: set[str] = set()
        self.deletions = 0
        self._cluster = cluster
        self._host: Host = cluster.sim.host(ADDRESS)
        self._chance = cluster.sim.chance("passing topics")
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def come_and_go(self) -> None:
        """From now on, until `end`."""
        self._is_over = False
        self._task = self._host.start(self._go_on)

    def end(self) -> None:
        """No more after the one that is under way."""
        self._is_over = True
        if self._task is not None:
            self._cluster.sim.run_until(self._task.done, 60)

    async def _go_on(self) -> None:
        channels = Channels()
        try:
            while not self._is_over:
                await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))
                try:
                    await self._do_something(channels)
                except RoquetError:
                    continue
        finally:
            await channels.close()

    async def _do_something(self, channels: Channels) -> None:
        name = self._chance.choice(NAMES)
        if name in self.gone or self._chance.random() < 0.7:
            await self._fill(channels, name)
            return
        await self._ask(channels, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
        self.gone.add(name)
        self.deletions += 1

    async def _fill(self, channels: Channels, name: str) -> None:
        self.gone.discard(name)
        made = {
            "topic": name,
            "defaultTopic": "TBW102",
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": False,
        }
        numbers = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicSysFlag": 0}
        await self._ask(channels, RequestCode.UPDATE_AND_CREATE_TOPIC, {**made, **numbers})
        for number in range(self._chance.randrange(MESSAGES_MAX)):
            sent = {
                "producerGroup": "operator", "topic": name, "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
                "queueId": number % QUEUES, "sysFlag": 0, "bornTimestamp": 1, "flag": 0,
                "properties": f"KEYS\x01{name}-{number}", "reconsumeTimes": 0, "unitMode": False,
            }  # fmt: skip
            await self._ask(channels, RequestCode.SEND_MESSAGE, sent, b"passing")

    async def _ask(
        self, channels: Channels, code: RequestCode, fields: dict[str, object], body: bytes = b""
    ) -> None:
        address = self._cluster.master.address
        request = Command(code, {name: to_text(value) for name, value in fields.items()}, body)
        checked(await channels.call(address, request, CALL_MS), address)

    def check(self, *, are_trimmed: bool = True) -> None:
        """When all is quiet: the master has nothing of what is gone, neither in memory nor on its drive; of what is
        there the slaves have what it has.

        :param are_trimmed: whether queues begin where the log does; one that could not be read when files of the log
            went is trimmed at the next pass of retention.
        """
        self._cluster.wait_until_dispatched()
        master = self._cluster.master
        broker = self._cluster.broker(master.name)
        for name in self.gone:
            assert name not in broker.parts.tables.topics.to_table().topics, f"topic {name} is back"
            assert not broker.store.queues.of_topic(name), f"queues of {name} are back"
            left = [str(path) for path in master.host.drive.names.files if name in path.parts]
            assert not left, f"files of {name} are left: {left}"
        for queue in (queue for name in NAMES for queue in broker.store.queues.of_topic(name)):
            self._check_queue(broker.store, queue, are_trimmed=are_trimmed)

    def _check_queue(self, store: Store, queue: ConsumeQueue, *, are_trimmed: bool) -> None:
        slaves = {
            slave.name: self._cluster.broker(slave.name).store for slave in self._cluster.slaves
        }
        for offset in range(queue.min_offset, queue.max_offset):
            entry = queue.entry(offset)
            assert entry is not None
            if entry[0] < store.log.start and not are_trimmed:
                continue
            where = f"offset {offset} of queue {queue.queue_id} of {queue.topic}"
            record = decode(store.log.record_at(entry[0]) or b"", verify=True)
            assert (record.topic, record.queue_id, record.queue_offset) == (
                queue.topic,
                queue.queue_id,
                offset,
            ), where
            for name, other in slaves.items():
                copy = other.queues.known(queue.topic, queue.queue_id)
                has = copy.entry(offset) if copy is not None else None
                assert has == entry or other.log.start > entry[0], (
                    f"{name} has {has} at {where}, {entry} is due"
                )
