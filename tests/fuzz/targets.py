"""What bytes from outside meet first, each as a function of these bytes: it must end, and say what
is wrong.

`test_fuzz.py` feeds them with damaged samples, `make fuzz` with whatever reaches new code.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from roquet.common.properties import parse as parse_properties
from roquet.common.steps import finished
from roquet.errors import CorruptRecord, FilterError, StoreError
from roquet.protocol.bodies.tables import (
    DelayOffsetTable,
    GroupTable,
    OffsetTable,
    TopicTable,
    parse,
)
from roquet.protocol.filters.sql92 import compile_sql
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.block import RecordBlock, record_starts
from roquet.protocol.records.message import split_properties
from roquet.protocol.records.record import check, decode, decode_all
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.config import StoreConfig
from roquet.storage.dispatch.columns import read_rows
from roquet.storage.files.segments import file_name
from roquet.storage.index.index import Index
from roquet.storage.queues.consume_queue import ENTRY_SIZE, ConsumeQueue
from roquet.storage.store import Store
from tests.simulation.disk import Drive, MountedDisk
from tests.storage.records import append_one

ROOT: Final = Path("/s")
LOG_FILE: Final = 8192
QUEUE_FILE: Final = 50 * ENTRY_SIZE
SLOTS, ENTRIES = 16, 40
INDEX_FILE: Final = 40 + SLOTS * 4 + ENTRIES * 20
CONFIG: Final = StoreConfig(
    ROOT, [ROOT / "commitlog"], LOG_FILE, QUEUE_FILE, index_slots=SLOTS, index_entries=ENTRIES
)


def disk_with(**files: tuple[bytes, int]) -> MountedDisk:
    """A drive with files below the root, each with its content and its size; `__` in a name stands
    for `/`.
    """
    disk = Drive(random.Random(1)).mount()
    for name, (data, size) in files.items():
        file = disk.open(ROOT / name.replace("__", "/"), size)
        file.buffer[: min(len(data), size)] = data[:size]
    return disk


def record(data: bytes) -> None:
    """A stored message, and many of them."""
    with suppress(CorruptRecord):
        decode(data, verify=True)
    with suppress(CorruptRecord):
        list(decode_all(data))
    starts, end = record_starts(data)
    if not starts:
        return
    block = RecordBlock(0, data, starts, end)
    assert block.sound_count(verify=True) <= block.sound_count(verify=False) <= len(block)
    for at, part in block.records():
        with suppress(CorruptRecord):
            check(part, at, verify=True)
    read_rows(block)


def batch(data: bytes) -> None:
    """The body of a batch, and the properties of a message."""
    with suppress(ValueError):
        list(split_batch(data))
    split_properties(data.decode("utf-8", "replace"))


def log(data: bytes) -> None:
    """A file of the log, after a crash: what is sound of it is read, and the store takes messages
    behind it.
    """
    for with_end in (False, True):
        disk = disk_with(**{f"commitlog__{file_name(0)}": (data, LOG_FILE), "abort": (b"", 1)})
        if with_end:
            disk.open(ROOT / "commitlog" / file_name(LOG_FILE), LOG_FILE)
        store = Store(CONFIG, lambda: 1_700_000_000_000, disk)
        store.open()
        queue = store.queue("fuzz", 0)
        at = append_one(store, queue, b"body")
        stored = store.log.record_at(at)
        assert stored is not None
        assert decode(stored, verify=True).body == b"body"
        for each in list(store.queues):
            store.fetch(each.topic, each.queue_id, each.min_offset, 32, TagFilter())
        store.offset_at_time("fuzz", 0, 1_600_000_000_000)
        store.close()


def queue(data: bytes) -> None:
    """A file of a consume queue."""
    disk = disk_with(**{f"q__{file_name(0)}": (data, QUEUE_FILE)})
    loaded = ConsumeQueue(disk, ROOT / "q", QUEUE_FILE, "T", 0)
    loaded.load()
    loaded.correct_min_offset(1000)
    assert 0 <= loaded.min_offset <= loaded.max_offset <= QUEUE_FILE // ENTRY_SIZE
    list(loaded.entries(loaded.min_offset, 1000))
    loaded.truncate(5000)
    end = loaded.max_offset
    loaded.make_room(1)
    loaded.put(end, 6000, 100, 0, 1)
    assert loaded.entry(end) == (6000, 100, 0)


def index(data: bytes) -> None:
    """An index file."""
    disk = disk_with(index__20260101000000000=(data, INDEX_FILE))
    found = Index(disk, ROOT / "index", SLOTS, ENTRIES)
    found.load()
    for key in ("a", "b", "order-1"):
        assert len(finished(found.find("T", key, 0, 1 << 62, 64))) <= 64
    found.add("T", [b"a"], 1 << 40, 1_700_000_000_000)
    found.flush()
    assert set(finished(found.find("T", "a", 1_700_000_000_000, 1 << 62, 1))) <= {1 << 40}
    found.files[0].truncate(1, 0)


def checkpoint(data: bytes) -> None:
    disk = disk_with(checkpoint=(data, max(1, len(data))))
    loaded = Checkpoint(disk, ROOT / "checkpoint")
    loaded.load()
    with suppress(struct.error):
        loaded.save()


def whole_store(data: bytes) -> None:
    """A store whose checkpoint is anything, beside a sound log."""
    disk = disk_with(checkpoint=(data, max(1, len(data))), abort=(b"", 1))
    for _ in range(2):
        store = Store(CONFIG, lambda: 1_700_000_000_000, disk)
        store.open()
        append_one(store, store.queue("T", 0), b"body")
        store.abandon()


TABLES: Final[tuple[Callable[[Mapping[str, Any]], object], ...]] = (
    TopicTable.from_json,
    GroupTable.from_json,
    OffsetTable.from_json,
    DelayOffsetTable.from_json,
)


def state_file(data: bytes) -> None:
    """The files below `config/`."""
    for table in TABLES:
        with suppress(ValueError):
            parse(data, table)


def settings(data: bytes) -> None:
    """A configuration file."""
    with suppress(ValueError):
        parse_properties(data.decode("utf-8", "replace"))


def sql(data: bytes) -> None:
    """An SQL92 expression, and a message that it may want."""
    text = data.decode("utf-8", "replace")
    with suppress(FilterError):
        compile_sql(text).matches({"a": text, "b": "5", "colour": "blue"})


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    each.__name__: each
    for each in (
        record,
        batch,
        log,
        queue,
        index,
        checkpoint,
        whole_store,
        state_file,
        settings,
        sql,
    )
}
ALLOWED: Final = (StoreError,)
"""What a target may raise all the same: an error that names the file."""
