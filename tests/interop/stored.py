"""What a store holds, read from its log files, and what a broker gives of it, asked over a plain
socket.

Like `wire`, it stands apart from `roquet` on purpose: the store and the broker may be ours or
Apache's.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop import wire

PULL_MESSAGE = 11
QUERY_MESSAGE = 12
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
VIEW_MESSAGE_BY_ID = 33
FOUND, TOPIC_NOT_EXIST, NONE_WANTED = 0, 17, 20
SUBSCRIPTION_IN_PULL = 4
COMPRESSED = 0x01
TRANSACTION_BITS, COMMIT, ROLLBACK = 0x0C, 0x08, 0x0C
MESSAGE_MAGIC, BLANK_MAGIC = 0xDAA320A7, 0xCBD43194
ENTRY = struct.Struct(">qiq")
BLANK_SIZE = 0x7FFFFFFF
"""What an entry gives for the size of a message that was never there."""
TIMEOUT_S = 20
END_OF_TIME = 1 << 62

Queue = tuple[str, int]


@dataclass(frozen=True)
class Stored:
    """One record, as it stands in a log file; its hosts are IPv4."""

    data: bytes
    queue_id: int
    queue_offset: int
    at: int
    sys_flag: int
    body: bytes
    topic: str
    properties: dict[str, str]

    @property
    def takes_a_slot(self) -> bool:
        return self.sys_flag & TRANSACTION_BITS in (0, COMMIT)

    @property
    def offset_message_id(self) -> str:
        """What brokers answer a send with; its host is the store's."""
        return (self.data[64:72] + struct.pack(">q", self.at)).hex().upper()

    @property
    def text(self) -> str:
        """What was sent."""
        return (zlib.decompress(self.body) if self.sys_flag & COMPRESSED else self.body).decode()

    @property
    def keys(self) -> list[str]:
        return [
            key
            for name in ("UNIQ_KEY", "KEYS")
            for key in self.properties.get(name, "").split(" ")
            if key
        ]


def record(data: bytes) -> Stored:
    """The record that `data` begins with."""
    size, magic, _, queue_id, _, queue_offset, at, sys_flag = struct.unpack_from(">iIIiiqqi", data)
    assert magic == MESSAGE_MAGIC, hex(magic)
    (body_size,) = struct.unpack_from(">i", data, 84)
    topic_at = 88 + body_size
    properties_at = topic_at + 1 + data[topic_at]
    pairs = data[properties_at + 2 : size].decode(errors="replace").split("\x02")
    properties = {
        name: value for name, _, value in (pair.partition("\x01") for pair in pairs) if name
    }
    topic = data[topic_at + 1 : properties_at].decode(errors="replace")
    return Stored(
        data[:size], queue_id, queue_offset, at, sys_flag, data[88:topic_at], topic, properties
    )


def records(data: bytes) -> list[Stored]:
    """Records that stand side by side, as in the answer to a pull."""
    found, at = [], 0
    while at < len(data):
        found.append(record(data[at : at + int.from_bytes(data[at : at + 4])]))
        at += len(found[-1].data)
    return found


def log_records(store_dir: Path) -> Iterator[Stored]:
    """Every record of the log, up to the first bytes that are none; each must say where it
    stands.
    """
    for file in sorted((store_dir / "commitlog").iterdir()):
        data, index = file.read_bytes(), 0
        while index + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, index)
            if magic == BLANK_MAGIC:
                break
            if magic != MESSAGE_MAGIC:
                return
            found = record(data[index : index + size])
            assert found.at == int(file.name) + index
            yield found
            index += size


def written_files(directory: Path) -> dict[str, bytes]:
    """By path; files without a single byte in them are made ahead, and do not count."""
    files = {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("0*")
        if file.is_file()
    }
    return {name: data for name, data in files.items() if any(data)}


def log_queues(store_dir: Path) -> dict[Queue, dict[int, Stored]]:
    """What each queue has to give by what the log says: its offsets follow one another, and none is
    there twice.
    """
    queues: dict[Queue, dict[int, Stored]] = defaultdict(dict)
    for found in log_records(store_dir):
        if found.takes_a_slot:
            queue = queues[found.topic, found.queue_id]
            last = next(reversed(queue), found.queue_offset - 1)
            assert found.queue_offset == last + 1, f"{found} after {last}"
            queue[found.queue_offset] = found
    return dict(queues)


def queue_entries(store_dir: Path) -> dict[Queue, dict[int, tuple[int, int, int]]]:
    """Of each queue what its files say of its messages: where in the log, how large, code of the
    tag.
    """
    queues: dict[Queue, dict[int, tuple[int, int, int]]] = defaultdict(dict)
    for file in sorted((store_dir / "consumequeue").glob("*/*/*")):
        queue, first = (file.parts[-3], int(file.parts[-2])), int(file.name) // ENTRY.size
        for offset, entry in enumerate(ENTRY.iter_unpack(file.read_bytes()), first):
            if 0 < entry[1] < BLANK_SIZE:
                queues[queue][offset] = entry
    return dict(queues)


def served(broker: str, queue: Queue, tags: str = "*") -> dict[int, bytes]:
    """Every record that the broker gives of a queue, by offset, from its least to its greatest."""
    at, end = bounds(broker, queue)
    found: dict[int, bytes] = {}
    while at < end:
        answer = pull(broker, queue, at, tags)
        assert answer.code in (FOUND, NONE_WANTED), f"{queue} at {at}: {answer}"
        found |= {each.queue_offset: each.data for each in records(answer.body)}
        before, at = at, int(answer.header["extFields"]["nextBeginOffset"])
        assert at > before
    return found


def pull(broker: str, queue: Queue, offset: int, tags: str = "*") -> wire.Answer:
    """One pull that does not wait."""
    fields = {
        "consumerGroup": "judge",
        "topic": queue[0],
        "queueId": str(queue[1]),
        "queueOffset": str(offset),
    }
    fields |= {
        "maxMsgNums": "32",
        "sysFlag": str(SUBSCRIPTION_IN_PULL),
        "commitOffset": "0",
        "subVersion": "0",
    }
    fields |= {"suspendTimeoutMillis": "0", "subscription": tags, "expressionType": "TAG"}
    return wire.ask(broker, PULL_MESSAGE, fields, timeout_s=TIMEOUT_S)


def view(broker: str, at: int) -> bytes:
    """The record at a physical offset, as a message id asks for it."""
    return wire.ask(broker, VIEW_MESSAGE_BY_ID, {"offset": str(at)}, timeout_s=TIMEOUT_S).body


def bounds(broker: str, queue: Queue) -> tuple[int, int]:
    """The least offset of a queue, and the one its next message gets."""
    fields = {"topic": queue[0], "queueId": str(queue[1])}
    least, next_ = (
        wire.ask(broker, code, fields).header["extFields"]
        for code in (GET_MIN_OFFSET, GET_MAX_OFFSET)
    )
    return int(least["offset"]), int(next_["offset"])


def found_by_key(broker: str, topic: str, key: str) -> list[Stored]:
    """What the broker's index has for a key; none when it knows nothing."""
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": "64",
        "beginTimestamp": "0",
        "endTimestamp": str(END_OF_TIME),
    }
    answer = wire.ask(broker, QUERY_MESSAGE, fields, timeout_s=TIMEOUT_S)
    return records(answer.body) if answer.code == 0 else []


def assert_serves_its_log(
    broker: str, store_dir: Path, *, keys_from: int = 0
) -> dict[Queue, dict[int, Stored]]:
    """Of every queue the broker gives exactly the bytes that its log holds, at their offsets; what
    the log holds.

    Apache's broker makes the topic of the transactions' ends only when it looks for open ones, and
    refuses pulls of it until then; its records are asked for one by one.

    :param keys_from: the physical offset from where on the keys must be found.
    """
    queues = log_queues(store_dir)
    for queue, expected in queues.items():
        assert bounds(broker, queue) == (min(expected), max(expected) + 1), queue
        if pull(broker, queue, min(expected)).code != TOPIC_NOT_EXIST:
            assert served(broker, queue) == {
                offset: each.data for offset, each in expected.items()
            }, queue
    for each in log_records(store_dir):
        assert view(broker, each.at) == each.data
        if each.at >= keys_from and each.sys_flag & TRANSACTION_BITS != ROLLBACK:
            for key in each.keys:
                hits = found_by_key(broker, each.topic, key)
                assert each.data in [hit.data for hit in hits], f"{each.topic} {key}: {hits}"
    return queues
