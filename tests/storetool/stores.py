"""Stores to look at: made by our own code, small, and damaged on purpose."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from roquet.common.steps import finished
from roquet.errors import StoreError
from roquet.protocol.records import message as m
from roquet.protocol.records.record import host_bytes
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from roquet.storetool.check.check import Checked, check
from roquet.storetool.check.findings import FindingKind
from roquet.storetool.files import StoreFiles, find_files
from roquet.storetool.read.index_files import Shape
from roquet.storetool.rebuild import Plan, rebuild
from tests.storage.records import append_one

LOG_FILE: Final = 4096
QUEUE_FILE: Final = 200
SHAPE: Final = Shape(50, 40)
COUNT: Final = 97
"""Messages of a store that tests damage: some files of log, queues and index."""
FLAG: Final = 7
START_MS: Final = 1_700_000_000_000
PLAN: Final = Plan(
    queues=True, index=True, queue_file_size=QUEUE_FILE, shape=SHAPE, delay_levels_ms=(1000, 5000)
)
V4: Final = host_bytes("10.0.0.9", 50000)
V6: Final = host_bytes("fe80::1", 50000)


class Broker:
    """A store that is written to; `now_ms` moves by one with each message."""

    def __init__(self, root: Path, **changes: object) -> None:
        values: dict[str, object] = {
            "root": root,
            "commit_log_folders": [root / "commitlog"],
            "commit_log_file_size": LOG_FILE,
            "consume_queue_file_size": QUEUE_FILE,
            "index_slots": SHAPE.slots,
            "index_entries": SHAPE.entries,
            "delay_levels_ms": (1000, 5000),
            "store_host": host_bytes("127.0.0.1", 10911),
        }
        self.now_ms = START_MS
        self.store = Store(StoreConfig(**{**values, **changes}), lambda: self.now_ms)  # type: ignore[arg-type]
        self.store.open()
        self.now_ms = max(self.now_ms, self.store.dispatch.store_ms, self.store.checkpoint.log_ms)

    def put(
        self,
        body: bytes,
        topic: str = "T",
        queue_id: int = 0,
        *,
        sys_flag: int = 0,
        born_host: bytes = V4,
        tag_code: int | None = None,
        **properties: str,
    ) -> int:
        self.now_ms += 1
        store = self.store
        keys = [
            text.encode()
            for text in (properties.get(m.UNIQ_KEY, ""), *properties.get(m.KEYS, "").split())
            if text
        ]
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()
        code = m.tag_code(properties.get(m.TAGS)) if tag_code is None else tag_code
        sys_flag |= m.BORN_HOST_V6 if len(born_host) > 8 else 0
        at = append_one(
            store,
            store.queue(topic, queue_id),
            body,
            text,
            keys,
            code,
            flag=FLAG,
            sys_flag=sys_flag,
            born_ms=self.now_ms,
            born_host=born_host,
        )
        store.end_turn()
        return at

    def fill(self, count: int, topic: str = "T", queues: int = 2) -> list[int]:
        """Messages with tags and two keys each, in turn in the queues."""
        return [
            self.put(
                b"message %d" % number, topic, number % queues,
                TAGS="ab"[number % 2], UNIQ_KEY=f"{topic}-{number:08d}", KEYS=f"k{number % 5}",
            )
            for number in range(count)
        ]  # fmt: skip

    def delayed(self, level: int = 1) -> None:
        due = self.now_ms + 1 + (1000, 5000)[level - 1]
        self.put(
            b"later",
            m.SCHEDULE_TOPIC,
            level - 1,
            tag_code=due,
            DELAY=str(level),
            REAL_TOPIC="T",
            UNIQ_KEY="d",
        )

    def stop(self) -> None:
        self.store.close()

    def die(self) -> None:
        """As when the process is killed: everything was written, nothing closed."""
        finished(self.store.flush_index())
        self.store.abandon()


def filled(root: Path, count: int = 40, **changes: object) -> list[int]:
    """A store that was stopped cleanly; where its records are."""
    broker = Broker(root, **changes)
    places = broker.fill(count)
    broker.stop()
    return places


def files_of(root: Path, logs: Sequence[Path] = ()) -> StoreFiles:
    return find_files(root, logs)


def checked(root: Path, logs: Sequence[Path] = (), shape: Shape = SHAPE) -> Checked:
    return check(files_of(root, logs), shape)


def found(root: Path) -> list[tuple[FindingKind, str, int | None]]:
    """Kind, file and byte of every finding."""
    return [(each.kind, each.file, each.offset) for each in checked(root).findings.kept]


def assert_sound(checked: Checked) -> None:
    assert checked.findings.kept == []
    assert checked.findings.count == 0


def entry_place(queue_id: int, offset: int, topic: str = "T") -> tuple[str, int]:
    at = offset * 20
    return f"consumequeue/{topic}/{queue_id}/{at - at % QUEUE_FILE:020d}", at % QUEUE_FILE


def write_entry(root: Path, queue_id: int, offset: int, data: bytes, topic: str = "T") -> None:
    name, index = entry_place(queue_id, offset, topic)
    overwrite(root / name, index, data)


def read_entry(root: Path, queue_id: int, offset: int, topic: str = "T") -> bytes:
    name, index = entry_place(queue_id, offset, topic)
    return (root / name).read_bytes()[index : index + 20]


def text_of(root: Path) -> str:
    (finding,) = checked(root).findings.kept
    return finding.text


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def overwrite(path: Path, at: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)


def file_of(root: Path, at: int) -> tuple[str, int]:
    """Name of the log's file, and the byte in it, of a physical offset."""
    return f"commitlog/{at - at % LOG_FILE:020d}", at % LOG_FILE


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder: time of its last change, and content."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted([root, *root.rglob("*")])
    }


def entries(root: Path, *folders: str) -> dict[str, bytes]:
    """The content of all files below these folders, without the zeros at their ends."""
    return {
        str(path.relative_to(root)): path.read_bytes().rstrip(b"\0")
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def forget(root: Path, *folders: str) -> None:
    for folder in folders:
        shutil.rmtree(root / folder)


def assert_refused(root: Path, why: str) -> None:
    """Rebuilding says why it does not, and changes nothing."""
    before = snapshot(root)
    with pytest.raises(StoreError, match=why):
        rebuild(files_of(root), PLAN)
    before.pop("lock"), before.pop(".")
    after = snapshot(root)
    assert {name: after[name] for name in before} == before
