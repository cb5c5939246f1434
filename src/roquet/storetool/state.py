"""Reads the state of a store: lock, abort file, checkpoint, table of topics."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import StoreError
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import NOT_SENDABLE
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.file_lock import is_locked_here
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scanner import record_at


@dataclass(frozen=True, slots=True)
class State:
    """The state in which a store is.

    :param is_locked: whether a broker runs; None if the system does not say.
    :param has_abort: whether a broker runs, or did not stop cleanly.
    """

    is_locked: bool | None
    has_abort: bool
    checkpoint: Checkpoint

    @property
    def is_crashed(self) -> bool:
        """Whether no broker runs and the last one did not stop cleanly."""
        return self.has_abort and not self.is_locked


def read_state(root: Path) -> State:
    """Read the state of the store at `root`.

    :raises StoreError: the checkpoint cannot be read.
    """
    checkpoint = Checkpoint(RealDisk(), root / "checkpoint")
    try:
        checkpoint.load()
    except OSError as error:
        raise StoreError(f"{root / 'checkpoint'} cannot be read: {error.strerror}") from error
    return State(is_locked(root / "lock"), (root / "abort").exists(), checkpoint)


def is_locked(path: Path) -> bool | None:
    """Whether a broker holds the file lock (docs/storage/files.md#the-file-lock).

    The lock is only tested, not taken. Returns None if the system does not say.
    """
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
    """Return the checkpoint mark if it fits the log, else None.

    It fits if the record before it still has the size and store time that the mark has.
    """
    mark = checkpoint.mark
    if mark is None:
        return None
    record = record_at(files.log, mark.last_at)
    if isinstance(record, str) or (mark.last_at + record.size, record.store_ms) != (
        mark.position,
        mark.last_ms,
    ):
        return None
    return mark


def recovery_start(files: StoreFiles, checkpoint: Checkpoint) -> int:
    """Return the physical offset from which on recovery checks and dispatches after a crash.

    See docs/storage/recovery.md#where-checking-begins.
    """
    mark = mark_of_this_log(files, checkpoint)
    if mark is not None:
        return mark.position
    for file in reversed(files.log.files):
        record = record_at(files.log, file.start)
        if not isinstance(record, str) and 0 < record.store_ms <= checkpoint.safe_ms:
            return file.start
    return files.log.start


def kept_topics(root: Path) -> frozenset[str] | None:
    """Return the topics whose queues are kept, or None if the store has no table of topics.

    They are those of `config/topics.json` and the broker's own topics.
    """
    try:
        table = load((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return frozenset(table) | NOT_SENDABLE if isinstance(table, dict) else None


def disk_used(folders: set[Path]) -> int:
    """Return how many bytes the files below these folders take on the drive; holes take none."""
    used = 0
    for folder in folders:
        for at, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):
                    status = Path(at, name).stat()
                    used += getattr(status, "st_blocks", status.st_size // 512) * 512
    return used
