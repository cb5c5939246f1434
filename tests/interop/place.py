"""One store directory and the brokers that open it in turn, Apache's and ours; a client of Apache's
talks to each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roquet.protocol.json.dialect import load
from tests.interop.apache import PATIENT, ApacheBroker, Session, free_port, wait_until
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetBroker
from tests.interop.stored import log_queues, log_records

Lines = list[dict[str, Any]]
Broker = ApacheBroker | RoquetBroker
MIB = 1024 * 1024
NAME, CLUSTER = "broker-a", "DefaultCluster"
LOG_FILE = 12 * MIB
SHARED: dict[str, str | int] = {
    "mappedFileSizeCommitLog": LOG_FILE,
    "mappedFileSizeConsumeQueue": 20 * 20,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "messageDelayLevel": "1s 2s 3s 1h 12s",
    "flushConsumerOffsetInterval": 500,
    "flushConsumeQueueThoroughInterval": 1000,
    "transactionTimeOut": 500,
    "transactionCheckInterval": 600_000,
}
"""Every queue has files that are full, and a message of 4 MiB fits into a log file twice. Nobody is
asked about an open transaction, which would write it again, unless a test wants it."""
AT_EVERY_START = (
    "found a illegal magic code 0x0",
    r"maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\(\1\), truncate dirty logic files",
    r"time\(ms\)",
)
"""What Apache's broker says of any store of its own: the log ends in zeros, and the queues end
where the log does; and that something took it long, on a busy machine."""
BUILT_ALREADY = "Maybe try to build consume queue repeatedly"
"""What it says besides after a crash, of entries that it finds when it reads the log again."""


QUEUES_AHEAD = "truncate dirty logic files"
"""What it says when a kill took the end of the log, and not what the queues say of it."""


class Place:
    """A store directory and the brokers that open it, one after the other, under one name and
    address.
    """

    def __init__(
        self, namesrv: str, store_dir: Path, client: Session, shared: Mapping[str, str | int]
    ) -> None:
        self.namesrv = namesrv
        self.store_dir = store_dir
        self.client = client
        self._shared = dict(shared)
        self._port = free_port(-2, 1)

    def apaches(self, **more: str | int) -> ApacheBroker:
        return ApacheBroker(
            self.namesrv, port=self._port, store_dir=self.store_dir, properties=self._shared | more
        )

    def ours(self, **more: str | int) -> RoquetBroker:
        return RoquetBroker(
            self.namesrv, name=NAME, cluster=CLUSTER, port=self._port, store_dir=self.store_dir,
            properties=self._shared | more,
        )  # fmt: skip

    def produce(self, topic: str, count: int, *options: object) -> Lines:
        words = ("produce", self.namesrv, topic, count, *PATIENT, "--max-size", 5 * MIB, *options)
        sent = self.client.run(*words).check()
        assert {line["sendStatus"] for line in sent if "checked" not in line} == {"SEND_OK"}
        return sent

    def takes(self, topic: str, group: str, count: int, *options: object) -> Lines:
        """A consumer of the group gets exactly so many messages; each is what the log has at its
        place.
        """
        words = ("consume", self.namesrv, topic, group, count, SECONDS, "--linger", 300, *options)
        got = self.client.run(*words).check()
        assert len(got) == count, Counter(line["body"][:20] for line in got)
        stored = log_queues(self.store_dir)
        for line in got:
            each = stored[topic, line["queueId"]][line["queueOffset"]]
            assert (line["commitLogOffset"], line["storeSize"]) == (each.at, len(each.data))
            assert (line["msgId"], line["body"]) == (each.properties["UNIQ_KEY"], each.text)
        assert len({(line["queueId"], line["queueOffset"]) for line in got}) == count
        return got

    def await_progress(
        self, group: str, topic: str = "Kinds", lag: int = 0, tag: str | None = None
    ) -> None:
        """Until the file says that the group is so far behind the last messages of the tag.

        A group that wants a tag is not told at once of what comes behind it in a queue.
        """
        ends: dict[str, int] = {}
        for (name, queue_id), has in log_queues(self.store_dir).items():
            if name == topic:
                wanted = [
                    offset
                    for offset, each in has.items()
                    if tag in (None, each.properties.get("TAGS"))
                ]
                ends[str(queue_id)] = 1 + max(wanted, default=-1)

        def is_written() -> bool:
            written: dict[str, int] = self.offsets("consumerOffset").get(f"{topic}@{group}", {})
            return lag == sum(
                max(0, end - written.get(queue_id, 0)) for queue_id, end in ends.items()
            )

        wait_until(is_written, f"progress of {group} to {lag} before {ends}")

    def remove_first_log_file(self) -> None:
        """As the brokers do when the messages in it are too old."""
        log_files(self)[0].unlink()

    def offsets(self, name: str) -> dict[str, Any]:
        """What one of the files with offsets says; nothing as long as there is none."""
        file = self.store_dir / "config" / f"{name}.json"
        return dict(load(file.read_bytes())["offsetTable"]) if file.exists() else {}


def each_of_a_batch(lines: Lines) -> Lines:
    """The result for a batch as one for each of its messages."""
    (line,) = lines
    pairs = zip(line["msgId"].split(","), line["offsetMsgId"].split(","), strict=True)
    return [
        line | {"msgId": id_, "offsetMsgId": offset_id, "queueOffset": offset}
        for offset, (id_, offset_id) in enumerate(pairs, line["queueOffset"])
    ]


def sent_ids(lines: Lines) -> list[str]:
    """In the order in which they were sent."""
    return [line["msgId"] for line in lines]


def ids(lines: Lines) -> list[str]:
    return sorted(line["msgId"] for line in lines)


def log_files(place: Place) -> list[Path]:
    return sorted((place.store_dir / "commitlog").iterdir())


def last_file_start(place: Place) -> int:
    """After a crash Apache's broker finds only keys of what it reads again, at the least of the
    last file in use.
    """
    files = [int(file.name) for file in log_files(place)]
    last = [each.at for each in log_records(place.store_dir)][-1]
    return max(start for start in files if start <= last)


def assert_no_complaints(broker: ApacheBroker, *usual: str) -> None:
    """Its store found nothing wrong."""
    lines = re.findall(r"^.*(?:WARN |ERROR) RocketmqStore (.*)$", broker.log(), re.MULTILINE)
    odd = [line for line in lines if not re.search("|".join((*AT_EVERY_START, *usual)), line)]
    assert not odd, odd
