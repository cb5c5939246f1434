"""The hex examples of docs/storage are what the code writes, and what it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.metadata.filter_registry import FilterBitsOf, FilterRegistry
from roquet.common.steps import finished
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.filters.bloom import BloomShape
from roquet.protocol.filters.tags import SQL92
from roquet.protocol.records.layout import BLANK_MAGIC, size_and_magic
from roquet.protocol.records.message import tag_code
from roquet.protocol.records.record import Record, decode, host_bytes
from roquet.replication import master, slave
from roquet.replication.frames import (
    Chunk,
    ChunkStream,
    HeartbeatFrame,
    ReportStream,
    header,
    report,
)
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.config import StoreConfig
from roquet.storage.files.disk import RealDisk
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from tests.docs.pages import STORAGE, hex_examples
from tests.storage.records import append_one

STORED_MS: Final = 1_767_225_600_000
BORN_HOST: Final = host_bytes("10.0.0.9", 50000)
FILE_SIZE: Final = 1024
SLOTS: Final = 8
ENTRIES: Final = 8
PROPERTIES: Final = "TAGS\x01new\x02KEYS\x01o-1 paid"
FIRST_FILE: Final = "0" * 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open store without messages, small enough for a page."""
    sizes = (FILE_SIZE, 200, True, SLOTS, ENTRIES)
    host = host_bytes("10.0.0.1", 10911)
    store = Store(
        StoreConfig(tmp_path, [tmp_path / "commitlog"], *sizes, store_host=host), lambda: STORED_MS
    )
    store.open()
    yield store
    store.close()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """UTC as local time: index files are named by it."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def append(store: Store) -> None:
    """The message of all pages."""
    keys = [b"o-1", b"paid"]
    queue = store.queue("orders", 3)
    append_one(
        store,
        queue,
        b"hi",
        PROPERTIES.encode(),
        keys,
        tag_code("new"),
        born_ms=STORED_MS - 5,
        born_host=BORN_HOST,
    )


def test_log_record(store: Store, tmp_path: Path) -> None:
    record, _ = hex_examples("commit-log.md")

    append(store)

    assert (tmp_path / "commitlog" / FIRST_FILE).read_bytes() == record.ljust(FILE_SIZE, b"\0")
    decoded = decode(record, verify=True)
    assert decoded == Record(
        queue_id=3,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_ms=STORED_MS - 5,
        born_host=BORN_HOST,
        store_ms=STORED_MS,
        store_host=store.config.store_host,
        reconsume_times=0,
        prepared_offset=0,
        body=b"hi",
        topic="orders",
        properties_text=PROPERTIES,
        body_crc=0x58932AAC,
    )
    assert decoded.encode() == record


def test_blank(store: Store, tmp_path: Path) -> None:
    record, blank = hex_examples("commit-log.md")
    end = 8 * len(record)

    for _ in range(9):
        append(store)

    assert (tmp_path / "commitlog" / FIRST_FILE).read_bytes()[end : end + 8] == blank
    assert size_and_magic(blank, 0) == (FILE_SIZE - end, BLANK_MAGIC)
    assert [at for at, _ in store.log.walk(end)] == [FILE_SIZE]


def test_consume_queue(store: Store, tmp_path: Path) -> None:
    entry, late, _ = hex_examples("consume-queue.md")

    append(store)

    assert (tmp_path / "consumequeue" / "orders" / "3" / FIRST_FILE).read_bytes() == entry.ljust(
        200, b"\0"
    )
    assert store.queue("orders", 3).entry(0) == (0, 121, tag_code("new"))
    disk = RealDisk()
    written = ConsumeQueue(disk, tmp_path / "late", 200, "orders", 3)
    written.make_room(1, 1)
    written.put(1, 0, 121, tag_code("new"), STORED_MS)
    written.close()
    assert (tmp_path / "late" / FIRST_FILE).read_bytes() == late.ljust(200, b"\0")
    read = ConsumeQueue(disk, tmp_path / "late", 200, "orders", 3)
    read.load()
    assert (read.max_offset, read.log_end) == (2, 121)
    read.close()


def test_note(tmp_path: Path) -> None:
    entry, _, note = hex_examples("consume-queue.md")
    filters = FilterRegistry(BloomShape(), 0)
    filters.register("billing", [Subscription("orders", "TAGS = 'new'", 1, SQL92)], STORED_MS)
    config = StoreConfig(
        tmp_path, [tmp_path / "commitlog"], FILE_SIZE, 200, ext_file_size=FILE_SIZE
    )
    noted = Store(config, lambda: STORED_MS, None, FilterBitsOf(filters, BloomShape()))
    noted.open()

    append(noted)

    place = Path("orders", "3", FIRST_FILE)
    assert (
        (tmp_path / "consumequeue" / place)
        .read_bytes()
        .startswith(entry[:12] + bytes([0x80]) + bytes(7))
    )
    assert (tmp_path / "consumequeue_ext" / place).read_bytes().startswith(note)
    noted.close()


def test_index_file(store: Store, tmp_path: Path) -> None:
    (example,) = hex_examples("index.md")

    append(store)
    finished(store.flush_index())

    (path,) = (tmp_path / "index").iterdir()
    assert path.read_bytes() == example.ljust(40 + 4 * SLOTS + 20 * ENTRIES, b"\0")
    assert store.index is not None
    for key in ("o-1", "paid"):
        assert finished(store.index.find("orders", key, 0, STORED_MS, 10)) == [0]


def test_checkpoint(store: Store, tmp_path: Path, utc: None) -> None:
    times, mark = hex_examples("checkpoint.md")

    append(store)
    store.close()

    assert (tmp_path / "checkpoint").read_bytes() == (times.ljust(64, b"\0") + mark).ljust(
        4096, b"\0"
    )
    read = Checkpoint(RealDisk(), tmp_path / "checkpoint")
    read.load()
    assert (read.log_ms, read.queues_ms, read.index_ms) == (STORED_MS, STORED_MS, STORED_MS)


def test_ha_stream() -> None:
    asked, chunk, acknowledged, heartbeat = hex_examples("replication.md")
    record, _ = hex_examples("commit-log.md")
    end = len(record)
    rules, nothing = master.Rules(), 0

    follower = slave.Follower(slave.Rules(), FILE_SIZE, slave.Phase.CONNECTING, "10.0.0.1:10912")
    follower, actions = slave.step(follower, slave.Connected(nothing, b""), now_ms=0)
    assert [report(action.offset) for action in actions if isinstance(action, slave.Report)] == [
        asked
    ]
    seen = master.Slave(rules, FILE_SIZE, nothing, end, heard_ms=0, sent_ms=0)
    seen, told = master.step(seen, master.Reported(reported(asked)), now_ms=0)
    assert told == [master.Acked(nothing), master.SendChunk(nothing, len(record))]
    assert header(nothing, len(record)) + record == chunk

    (frame,) = ChunkStream().feed(chunk)
    assert isinstance(frame, Chunk)
    follower, actions = slave.step(follower, frame, now_ms=0)
    assert actions == [slave.Append(nothing, frame.data)]
    follower, actions = slave.step(follower, slave.ReadEnded(), now_ms=0)
    assert [report(action.offset) for action in actions if isinstance(action, slave.Report)] == [
        acknowledged
    ]
    seen, _ = master.step(seen, master.WriteReady(), now_ms=0)
    seen, told = master.step(seen, master.Reported(reported(acknowledged)), now_ms=0)
    assert told == [master.Acked(end)]

    seen, told = master.step(seen, master.Tick(), now_ms=rules.heartbeat_ms)
    assert told == [master.SendHeartbeat(end)]
    assert header(end, 0) == heartbeat
    assert ChunkStream().feed(heartbeat) == [HeartbeatFrame(end)]


def reported(data: bytes) -> int:
    offset = ReportStream().feed(data)
    assert offset is not None
    return offset


def test_every_page_with_hex_examples_is_tested_here() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    pages = [page.name for page in sorted(STORAGE.glob("*.md")) if hex_examples(page.name)]

    assert pages == [
        "checkpoint.md",
        "commit-log.md",
        "consume-queue.md",
        "index.md",
        "replication.md",
    ]
    assert [page for page in pages if f'hex_examples("{page}")' not in tested] == []
