"""The files of an Apache broker that was stopped, of the same broker killed later, and single
records of its log.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.golden.collection import Collection, shown
from tests.golden.stage import BROKER, IPV4, say
from tests.interop import wire
from tests.interop.apache import (
    ApacheBroker,
    ApacheNameServer,
    Version,
    mqadmin,
    run_driver,
    wait_until,
)

TOPIC = "GoldenStore"
COMMIT_LOG_FILE_SIZE = 16_384
PROPERTIES = {
    "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 20,
    "maxIndexNum": 60,
    "transactionTimeOut": 500,
    "transactionCheckInterval": 2000,
}
MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
RECONSUME_SECONDS = 14  # A message sent back for the first time returns after 10 s.

PRODUCED: tuple[tuple[object, ...], ...] = (
    (
        TOPIC,
        4,
        "--tag",
        "TagA,TagB",
        "--keys",
        "key",
        "--property",
        "colour=blue,number={i}",
        "--flag",
        7,
    ),
    (TOPIC, 3, "--batch", 3, "--tag", "TagA", "--keys", "batch"),
    (TOPIC, 2, "--body", "plain-"),
    (TOPIC, 1, "--body", "gr\u00fc\u00dfe-\u4e16\u754c-\U0001f600-", "--tag", "\u4e2d\u6587"),
    (TOPIC, 1, "--body", "compressed-", "--size", 5000),
    (TOPIC, 1, "--body", "delayed-", "--delay", 1, "--tag", "TagA", "--keys", "delayed"),
    (
        TOPIC,
        1,
        "--body",
        "committed-",
        "--transaction",
        "commit",
        "--tag",
        "TagA",
        "--keys",
        "committed",
    ),
    (TOPIC, 1, "--body", "rolled-back-", "--transaction", "rollback"),
    (
        TOPIC,
        1,
        "--body",
        "checked-",
        "--transaction",
        "unknown",
        "--check",
        "commit",
        "--linger",
        6000,
    ),
    (TOPIC, 12, "--body", "long-", "--size", 2500, "--compress-over", 100_000),
)
READABLE = 4 + 3 + 2 + 1 + 1 + 1 + 1 + 1 + 12  # All but the one rolled back.


@dataclass(frozen=True)
class Done:
    """A driver's command and the lines it printed."""

    command: str
    lines: list[dict[str, Any]]


def capture(collection: Collection) -> None:
    collection.clear("store")
    collection.clear("records")
    with ExitStack() as stack:
        name_server = stack.enter_context(ApacheNameServer(java_options=[IPV4]))
        broker = stack.enter_context(
            ApacheBroker(name_server.address, properties=PROPERTIES, java_options=[IPV4])
        )
        sent, read = _produce(broker), _consume(broker)
        mqadmin(
            "updateKvConfig",
            "-s",
            "golden",
            "-k",
            "key",
            "-v",
            "value",
            namesrv=name_server.address,
        )
        broker.stop()
        line = (
            f"BrokerStartup with {shown(*(f'{key}={value}' for key, value in PROPERTIES.items()))}"
        )
        _add_store(collection, broker.store_dir, "store/clean", f"{line}, ended by SIGTERM")
        _add_records(collection, broker.store_dir / "commitlog", line, sent + read)
        _add_json(
            collection, "store/clean/sent.json", sent, "what the producers were told, by command"
        )
        _add_json(
            collection, "store/clean/read.json", read, "what Apache's client decoded, by command"
        )
        broker.start()
        late = [_run(broker, "produce", TOPIC, 2, "--body", "late-", "--keys", "late")]
        _await_offsets(broker, READABLE + 2)
        broker.kill()
        _add_store(
            collection,
            broker.store_dir,
            "store/crashed",
            f"{line}, started again, ended by SIGKILL",
        )
        _add_json(
            collection,
            "store/crashed/sent.json",
            late,
            "what was produced between the start and the kill",
        )
        kept = (name_server.directory / "namesrv" / "kvConfig.json").read_bytes()
        line = "mqadmin updateKvConfig -s golden -k key -v value"
        collection.add(
            "store/name-server/kvConfig.json",
            kept,
            "key-value file",
            "Apache name server 4.9.7",
            line,
        )
        broker.close()
        _add_ipv6(collection, name_server)


def _add_ipv6(collection: Collection, name_server: ApacheNameServer) -> None:
    """A record whose producer and broker have IPv6 addresses; the client dials `::1:port` as it
    stands in the route.
    """
    properties: dict[str, str | int] = {
        "brokerIP1": "::1",
        "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE,
    }
    broker = ApacheBroker(name_server.address, properties=properties)
    broker.start(registered=False)
    with broker:
        wait_until(
            lambda: wire.has_broker(name_server.address, f"::1:{broker.port}"),
            "the broker's IPv6 address",
        )
        words = ["produce", name_server.address, "GoldenIpv6", "1", "--tag", "TagA"]
        sent = Done(shown("java", "roquet.Driver", *words), run_driver(Version.V4, *words).check())
        data = (broker.store_dir / "commitlog" / f"{0:020}").read_bytes()
        data = data[: int.from_bytes(data[:4])]
    line = f"BrokerStartup with {shown(*(f'{key}={value}' for key, value in properties.items()))}; {sent.command}"
    collection.add("records/ipv6.bin", data, "ipv6 record", BROKER.title, line)
    _add_json(collection, "records/ipv6.json", [sent], "what the producer of ipv6.bin was told")


def _produce(broker: ApacheBroker) -> list[Done]:
    return [_run(broker, "produce", *words) for words in PRODUCED]


def _consume(broker: ApacheBroker) -> list[Done]:
    """Every message once, then two of them refused until they are dead letters."""
    _await_offsets(broker, READABLE)
    read = [_run(broker, "consume", TOPIC, "GoldenReader", READABLE, 60)]
    tag = ("--tag", "TagB")
    read.append(
        _run(broker, "consume", TOPIC, "GoldenRetry", 2, RECONSUME_SECONDS + 10, *tag, "--fail", 1)
    )
    read.append(
        _run(
            broker,
            "consume",
            TOPIC,
            "GoldenDead",
            2,
            RECONSUME_SECONDS,
            *tag,
            "--fail",
            9,
            "--max-reconsume",
            1,
        )
    )
    return read


def _run(broker: ApacheBroker, command: str, *words: object) -> Done:
    line = shown("java", IPV4, "roquet.Driver", command, broker.namesrv, *words)
    say(line)
    done = run_driver(Version.V4, command, broker.namesrv, *map(str, words), java_options=[IPV4])
    return Done(line, done.lines)


def _await_offsets(broker: ApacheBroker, messages: int) -> None:
    """Until the consume queues hold all there is to read: delayed and committed messages arrive
    late.
    """

    def complete() -> bool:
        lines = run_driver(
            Version.V4, "offsets", broker.namesrv, TOPIC, java_options=[IPV4]
        ).check()
        return sum(int(line["maxOffset"]) for line in lines) >= messages

    wait_until(complete, f"{messages} readable messages")


def _add_json(collection: Collection, file: str, done: list[Done], what: str) -> None:
    text = json.dumps([asdict(one) for one in done], ensure_ascii=False, indent=1) + "\n"
    collection.add(
        file, text.encode(), what, "roquet.Driver with Apache Java client 4.9.7", done[0].command
    )


def _add_store(collection: Collection, store: Path, part: str, line: str) -> None:
    kinds = {
        "commitlog": "commit log file",
        "consumequeue": "consume queue file",
        "index": "index file",
        "config": "configuration table",
    }
    for file in sorted(store.rglob("*")):
        if file.is_file() and file.suffix not in (".bak", ".tmp"):
            name = file.relative_to(store)
            what = kinds.get(name.parts[0], f"{name} file")
            collection.add(
                f"{part}/{name}", file.read_bytes(), f"{what}, whole", BROKER.title, line
            )


@dataclass(frozen=True)
class Record:
    """One record of the commit log, read just far enough to tell which it is."""

    data: bytes
    magic: int
    body: bytes = b""
    topic: str = ""
    properties: str = ""


def _records(commit_log: Path) -> Iterator[Record]:
    for file in sorted(commit_log.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic == BLANK_MAGIC:
                yield Record(data[at : at + 8], magic)
                break
            if magic != MESSAGE_MAGIC:
                return
            yield _record(data[at : at + size])
            at += size


def _record(data: bytes) -> Record:
    (body_size,) = struct.unpack_from(">i", data, 84)
    topic_at = 88 + body_size
    topic_size = data[topic_at]
    topic = data[topic_at + 1 : topic_at + 1 + topic_size].decode()
    return Record(
        data, MESSAGE_MAGIC, data[88:topic_at], topic, data[topic_at + topic_size + 3 :].decode()
    )


def _holds(topic: str, body: str = "", text: str = "") -> Callable[[Record], bool]:
    """Whether it is in that topic and its body and properties hold these."""
    return lambda record: (
        record.topic == topic and body.encode() in record.body and text in record.properties
    )


# Each kind of record: which one it is, and a piece of the command that made it.
RECORDS: dict[str, tuple[Callable[[Record], bool], str]] = {
    "tags-keys": (_holds(TOPIC, "message-0", "KEYS\x01key0"), "--keys key"),
    "batch-element": (_holds(TOPIC, "message-1", "KEYS\x01batch1"), "--batch"),
    "plain": (_holds(TOPIC, "plain-0"), "plain-"),
    "unicode": (_holds(TOPIC, "gr\u00fc\u00dfe"), "gr\u00fc\u00dfe"),
    "compressed": (lambda record: record.body.startswith(b"\x78\x5e"), "compressed-"),
    "delayed": (_holds("SCHEDULE_TOPIC_XXXX", "delayed-0"), "delayed-"),
    "delivered": (_holds(TOPIC, "delayed-0"), "delayed-"),
    "half": (_holds("RMQ_SYS_TRANS_HALF_TOPIC", "committed-0"), "committed-"),
    "committed": (_holds(TOPIC, "committed-0"), "committed-"),
    "half-checked": (
        _holds("RMQ_SYS_TRANS_HALF_TOPIC", "checked-0", "TRANSACTION_CHECK_TIMES"),
        "checked-",
    ),
    "operation": (_holds("RMQ_SYS_TRANS_OP_HALF_TOPIC"), "committed-"),
    "retry-waiting": (_holds("SCHEDULE_TOPIC_XXXX", text="RETRY_TOPIC"), "GoldenRetry"),
    "retry": (_holds("%RETRY%GoldenRetry"), "GoldenRetry"),
    "dead-letter": (_holds("%DLQ%GoldenDead"), "GoldenDead"),
    "blank": (lambda record: record.magic == BLANK_MAGIC, "long-"),
}


def _add_records(collection: Collection, commit_log: Path, line: str, done: list[Done]) -> None:
    records = list(_records(commit_log))
    for name, (fits, piece) in RECORDS.items():
        record = next((record for record in records if fits(record)), None)
        if record is None:
            raise LookupError(f"no {name} record among {len(records)}")
        made_by = next(one.command for one in done if piece in one.command)
        what = (
            "blank record at the end of a file, its first 8 bytes"
            if name == "blank"
            else f"{name} record"
        )
        collection.add(f"records/{name}.bin", record.data, what, BROKER.title, f"{line}; {made_by}")
