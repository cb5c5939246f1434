"""What a store says of itself: whether a broker uses it, how it was left, and how far its checkpoint vouches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import StoreError
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import NOT_SENDABLE
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.file_lock import is_locked_here
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scanner import arrival_at


@dataclass(frozen=True, slots=True)
class State:
    """`is_locked`: a broker runs, None where the system does not tell. `has_abort`: it runs or did not stop cleanly."""

    is_locked: bool | None
    has_abort: bool
    checkpoint: Checkpoint

    @property
    def is_crashed(self) -> bool:
        return self.has_abort and not self.is_locked


def read_state(root: Path) -> State:
    """How a store stands now."""
    checkpoint = Checkpoint(RealDisk(), root / "checkpoint")
    try:
        checkpoint.load()
    except OSError as error:
        raise StoreError(f"{root / 'checkpoint'} cannot be read: {error.strerror}") from error
    return State(is_locked(root / "lock"), (root / "abort").exists(), checkpoint)


def is_locked(path: Path) -> bool | None:
    """Whether somebody holds Apache's lock (docs/storage/files.md#the-file-lock); the lock is not taken."""
    if is_locked_here(path):
        return True
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        os.lockf(descriptor, os.F_TEST, 1)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def mark_of_this_log(files: StoreFiles, checkpoint: Checkpoint) -> CheckpointMark | None:
    """The checkpoint's mark, if the record in front of it is the one that stood there when it was made."""
    mark = checkpoint.mark
    if mark is None:
        return None
    record = arrival_at(files.log, mark.last_at)
    if isinstance(record, str) or (mark.last_at + record.size, record.store_ms) != (
        mark.position,
        mark.last_ms,
    ):
        return None
    return mark


def recovery_start(files: StoreFiles, checkpoint: Checkpoint) -> int:
    """From which physical offset on the log is read and dispatched again after a crash.

    See docs/storage/recovery.md#where-checking-begins.
    """
    mark = mark_of_this_log(files, checkpoint)
    if mark is not None:
        return mark.position
    for file in reversed(files.log.files):
        record = arrival_at(files.log, file.start)
        if not isinstance(record, str) and 0 < record.store_ms <= checkpoint.safe_ms:
            return file.start
    return files.log.start


def kept_topics(root: Path) -> frozenset[str] | None:
    """The topics of the broker's table, and those that need not be there; None where there is no table."""
    try:
        table = load((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return frozenset(table) | NOT_SENDABLE


def disk_used(root: Path, more: tuple[Path, ...] = ()) -> int:
    """Bytes that the files in these folders take on the drive; holes take none."""
    return sum(_used(path) for folder in {root, *more} for path in _files_below(folder))


def _files_below(folder: Path) -> Iterator[Path]:
    for at, _, names in os.walk(folder):
        yield from (Path(at, name) for name in names)


def _used(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return getattr(status, "st_blocks", status.st_size // 512) * 512
