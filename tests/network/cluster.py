"""A cluster on a network of its own: name server, SYNC_MASTER and slaves, each at another host, and
Apache's producer.

The test, Apache's client and the name server are at the host `names`, whose links stay good: what a
test does to the links between master and slaves is all that happens to a broker.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from enum import Enum
from types import TracebackType
from typing import Any, Self

from tests.integration.kills import assert_store_is_whole
from tests.interop.apache import Session, Version, start_session, wait_until
from tests.interop.roquet_cluster import RoquetBroker, RoquetCluster
from tests.interop.stored import record, served, written_files
from tests.network.link import CUT, Quality
from tests.network.namespaces import Network

Line = dict[str, Any]

TOPIC = "Far"
QUEUES = 32
PATIENCE_S = 60
SETTINGS: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 5000,
    "slaveTimeout": 5000,
}


class Outage(Enum):
    """What happens to the link between a slave and its master."""

    CUT = "cut"
    MUTE = "mute"
    """The master hears nothing of the slave, which hears it."""
    DEAF = "deaf"
    """The other way round."""


class FarCluster:
    """Slaves by the names of their hosts; all follow, and know the topic, when the `with` block
    begins.
    """

    def __init__(self, *slaves: str, seed: int = 0) -> None:
        self.network = Network("names", "master", *slaves, seed=seed)
        self.slave_names = slaves
        self._queues = itertools.cycle(range(QUEUES))
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.network)
            starting.enter_context(self.network.at("names"))
            names, master, *slaves = self.network.hosts.values()
            cluster = self.cluster = RoquetCluster(names, master, slaves, SETTINGS)
            starting.enter_context(cluster.name_server)
            starting.enter_context(cluster.master)
            cluster.create_topic(TOPIC, QUEUES)
            for slave in (
                cluster.slaves
            ):  # They learn of the topic soon after their start, and rarely later.
                starting.enter_context(slave)
            self.client: Session = starting.enter_context(start_session(Version.V4))
            cluster.wait_replicated()
            self.wait_same()
            wait_until(
                lambda: all(TOPIC in slave.state("topics") for slave in cluster.slaves),
                "slaves with the topic",
            )
            self._running = starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    @property
    def master(self) -> RoquetBroker:
        return self.cluster.master

    @property
    def slaves(self) -> Mapping[str, RoquetBroker]:
        return dict(zip(self.slave_names, self.cluster.slaves, strict=True))

    def links(self, quality: Quality) -> None:
        """Of the master with each slave."""
        for name in self.slave_names:
            self.network.link("master", name, quality)

    def disturb(self, outages: Iterable[Outage]) -> None:
        """One for each slave."""
        for name, outage in zip(self.slave_names, outages, strict=True):
            if outage is not Outage.DEAF:
                self.network.one_way(name, "master", CUT)
            if outage is not Outage.MUTE:
                self.network.one_way("master", name, CUT)

    def begin(self, count: int, *options: object) -> None:
        """Apache's producer begins to send so many messages, each of them once, into the next
        queue.
        """
        words = ("produce", self.cluster.namesrv, TOPIC, count, "--retry", 0, "--timeout", 20_000)
        self.client.begin(*words, "--queue", next(self._queues), *options)

    def produce(self, count: int, *options: object) -> list[Line]:
        self.begin(count, *options)
        return self.client.finish().lines

    def wait_same(self) -> None:
        """Until every slave has the master's files, byte for byte: the log, and what is derived
        from it.
        """
        for slave in self.cluster.slaves:
            self.wait_copied(slave)

    def wait_copied(self, slave: RoquetBroker) -> None:
        what = f"{slave.name} to have what the master has"
        wait_until(lambda: files(slave) == files(self.master), what, PATIENCE_S)

    def assert_kept(self, sent: Iterable[Line]) -> None:
        """Every broker gives what was acknowledged, once, and at the place that the answer
        named.
        """
        acknowledged = [line for line in sent if line.get("sendStatus") == "SEND_OK"]
        assert acknowledged
        for broker in self.cluster.brokers:
            assert_gives(broker, acknowledged)

    def assert_whole(self) -> None:
        """With all brokers stopped, every store is consistent in itself."""
        for broker in self.cluster.brokers:
            broker.stop()
            assert_store_is_whole(broker.store_dir)


def files(broker: RoquetBroker) -> list[dict[str, bytes]]:
    return [written_files(broker.store_dir / part) for part in ("commitlog", "consumequeue")]


def statuses(sent: Iterable[Line]) -> set[str]:
    """How sends were answered; a send without an answer counts as its error."""
    return {line.get("sendStatus") or f"{line['error']}: {line['message']}" for line in sent}


def assert_gives(broker: RoquetBroker, acknowledged: Iterable[Line]) -> None:
    by_queue: dict[int, list[Line]] = {}
    for line in acknowledged:
        by_queue.setdefault(line["queueId"], []).append(line)
    for queue_id, lines in by_queue.items():
        given = {
            offset: record(data)
            for offset, data in served(broker.address, (TOPIC, queue_id)).items()
        }
        times = Counter(each.properties["UNIQ_KEY"] for each in given.values())
        assert not times or max(times.values()) == 1, times.most_common(3)
        for line in lines:
            each = given[line["queueOffset"]]
            assert (each.properties["UNIQ_KEY"], each.offset_message_id) == (
                line["msgId"],
                line["offsetMsgId"],
            )
