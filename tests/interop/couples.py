"""A master and its slave, each ours or Apache's, whose logs and queues have to be the same."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from enum import Enum
from types import TracebackType
from typing import Self

from tests.interop import wire
from tests.interop.apache import ApacheBroker, Version, wait_until
from tests.interop.place import Broker
from tests.interop.roquet_cluster import RoquetBroker, create_topic
from tests.interop.stored import Queue, bounds, log_queues, queue_entries, written_files

LOG_FILE = 64 * 1024
PROPERTIES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": LOG_FILE,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "haSendHeartbeatInterval": 1_000,
    "slaveTimeout": 20_000,
    "waitTimeMillsInSendQueue": 20_000,
    "osPageCacheBusyTimeOutMills": 20_000,
}
"""Files of both kinds become full; Apache's slave says for the first time what it has after one
second, not five; what a busy host lets wait is not refused."""
MESSAGE_SIZE = 1_000
QUEUES = 2
SEND_OK, SLAVE_NOT_AVAILABLE = 0, 11
TIMEOUT_S = 30
WITHIN_S = 60


class Maker(Enum):
    OURS = "ours"
    APACHE = "apache"
    APACHE_5X = "apache-5x"


class Couple:
    """Master and slave under one name. Leaving its `with` block kills both; entering it starts
    neither.

    :param known: whether the slave is told where its master is; otherwise the name server tells it.
    :param properties: of both, beside `PROPERTIES`.
    """

    def __init__(
        self,
        namesrv: str,
        master: Maker,
        slave: Maker,
        role: str,
        *,
        known: bool = False,
        properties: Mapping[str, str | int] | None = None,
    ) -> None:
        self.name = f"{master.value}-{slave.value}-{role[:4]}"
        self.namesrv = namesrv
        self._properties = PROPERTIES | dict(properties or {})
        self.master = self._broker(master, role, 0, {})
        where: dict[str, str | int] = (
            {"haMasterAddress": f"127.0.0.1:{self.master.port + 1}"} if known else {}
        )
        self.slave = self._broker(slave, "SLAVE", 1, where)

    def _broker(
        self, maker: Maker, role: str, broker_id: int, more: dict[str, str | int]
    ) -> Broker:
        properties = self._properties | more
        if maker is Maker.OURS:
            return RoquetBroker(
                self.namesrv, name=self.name, role=role, broker_id=broker_id, properties=properties
            )
        version = Version.V5 if maker is Maker.APACHE_5X else Version.V4
        return ApacheBroker(
            self.namesrv,
            name=self.name,
            role=role,
            broker_id=broker_id,
            version=version,
            properties=properties,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.slave.close()
        self.master.close()

    def send(
        self,
        topic: str,
        count: int,
        *,
        waits: bool = True,
        size: int = MESSAGE_SIZE,
        queues: int = QUEUES,
    ) -> set[int]:
        """So many messages to the master, to each of the first queues in turn; the codes of its
        answers.

        :param waits: whether a SYNC_MASTER is to wait for its slave.
        """
        codes, wait = set(), str(waits).lower()
        with socket.create_connection(
            wire.parse_address(self.master.address), timeout=TIMEOUT_S
        ) as link:
            for number in range(count):
                properties = (
                    f"UNIQ_KEY\x01{topic}-{number}\x02TAGS\x01{'AB'[number % 2]}\x02WAIT\x01{wait}"
                )
                fields = wire.send_fields(topic, number % queues, properties)
                link.sendall(wire.request(wire.SEND_MESSAGE, fields, b"x" * size))
                codes.add(wire.read_answer(link).code)
        return codes

    def create_topic(self, topic: str, queues: int = QUEUES) -> None:
        """At the master; returns when the name server has a route for it."""
        create_topic(self.master, topic, queues)

    def await_topic_at_slave(self, topic: str) -> None:
        """Until the slave has copied it, which it does soon after its start and then each ten
        seconds.
        """
        topics = self.slave.store_dir / "config" / "topics.json"
        wait_until(
            lambda: topics.exists() and topic in topics.read_text(),
            f"{topic} at the slave",
            WITHIN_S,
        )

    def await_same(self) -> None:
        """Until the slave has all that the master has, from its own first byte on, in the log and
        in the queues.
        """
        wait_until(
            lambda: has_same_log(self.master, self.slave), f"equal logs of {self.name}", WITHIN_S
        )
        wait_until(lambda: has_whole_queues(self.master), "the master's queues", WITHIN_S)
        wait_until(lambda: has_whole_queues(self.slave), "the slave's queues", WITHIN_S)
        start = begin(self.slave)
        assert entries_from(self.slave, start) == entries_from(self.master, start)
        for broker in self.master, self.slave:
            assert_tells_bounds(broker)

    def await_follower(self) -> None:
        """Until the SYNC_MASTER says of a message that its slave has it."""
        wait_until(
            lambda: self.send("Followed", 1) == {SEND_OK},
            f"a slave of {self.name} that follows",
            WITHIN_S,
        )


def log_files(broker: Broker) -> dict[int, bytes]:
    """By the offset of their first byte."""
    return {int(name): data for name, data in written_files(broker.store_dir / "commitlog").items()}


def begin(broker: Broker) -> int:
    return min(log_files(broker))


def has_same_log(master: Broker, slave: Broker) -> bool:
    """The slave may begin later than its master."""
    theirs, copy = log_files(master), log_files(slave)
    return bool(copy) and copy == {
        start: data for start, data in theirs.items() if start >= min(copy)
    }


def entries_from(broker: Broker, start: int) -> dict[Queue, dict[int, tuple[int, int, int]]]:
    """The queue entries of what stands in the log from `start` on."""
    found = {
        queue: {offset: entry for offset, entry in entries.items() if entry[0] >= start}
        for queue, entries in queue_entries(broker.store_dir).items()
    }
    return {queue: entries for queue, entries in found.items() if entries}


def has_whole_queues(broker: Broker) -> bool:
    """Whether its queues have what its log says."""
    logged = {
        queue: {offset: (each.at, len(each.data)) for offset, each in has.items()}
        for queue, has in log_queues(broker.store_dir).items()
    }
    entries = {
        queue: {offset: entry[:2] for offset, entry in has.items()}
        for queue, has in entries_from(broker, begin(broker)).items()
    }
    return logged == entries


def assert_tells_bounds(broker: Broker) -> None:
    """It says of each queue that it begins at the first message in the log, and where it ends."""
    for queue, has in log_queues(broker.store_dir).items():
        assert bounds(broker.address, queue) == (min(has), max(has) + 1), (broker.name, queue)


def remove_first_log_file(broker: Broker) -> None:
    """As the broker does when the messages in it are too old; it must not run."""
    (broker.store_dir / "commitlog" / f"{begin(broker):020}").unlink()
