"""Saves the tail of a log before it is truncated, in a folder that `roquet store dump` can read.

`<store>/lost/<physical offset>[-N]/commitlog/` has the bytes at the physical offsets they had, in
sparse files of the log's segment size, so that the copy takes no more room than the saved bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Final

from roquet.errors import CorruptRecord, UnreadableFile
from roquet.storage.files.disk import Disk
from roquet.storage.files.segments import NAME_DIGITS, file_name
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.holes import Hole, HoleScanner, pieces

_log = logging.getLogger(__name__)

FOLDER: Final = "lost"
SIZE_MAX: Final = 1 << 30
"""Bytes of the largest tail that is saved."""
WITHOUT_RECORDS_MAX: Final = 16
"""A tail without a whole record is saved only while there are fewer folders. Each crash may leave
such a tail, so they would fill the drive."""
_FULLEST: Final = 0.95
"""Nothing is saved on a drive that is used beyond this share."""
_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class TruncatedTail:
    """The tail of a log that is going to be truncated at `at`.

    `end` is the end of its last byte that is not zero; `records` counts the whole records in it.
    """

    at: int
    end: int
    records: int

    @property
    def size(self) -> int:
        return self.end - self.at


def tail_from(log: CommitLog, physical: int) -> TruncatedTail | None:
    """The bytes in the log's files from `physical` on; None if they are all zero."""
    end = physical
    for start, data in _data(log, physical):
        end = start + len(data.rstrip(b"\0"))
    return TruncatedTail(physical, end, _whole_records(log, physical)) if end > physical else None


def _data(log: CommitLog, physical: int) -> Iterator[tuple[int, bytes]]:
    """The pieces of the log from `physical` on that are not all zeros, with their offsets."""
    physical = log.next_data(physical)
    while physical < log.readable_to:
        data = log.read(physical, _PIECE - physical % _PIECE)
        if not data:
            return
        if data.strip(b"\0"):
            yield physical, data
        physical = log.next_data(physical + len(data))


def _whole_records(log: CommitLog, physical: int) -> int:
    """How many whole records the log has from `physical` on."""
    records = 0
    try:
        for piece in pieces(log, physical, HoleScanner(log, at_once=SIZE_MAX), verify=True):
            records += 0 if isinstance(piece, Hole) else len(piece)
    except CorruptRecord:
        pass
    return records


def save(disk: Disk, root: Path, log: CommitLog, tail: TruncatedTail) -> Path | None:
    """Copy a tail below the store's folder, durably, and log where it is or why there is no copy.

    :param root: the store's folder.
    :returns: the folder of the copy, None if there is none.
    """
    folder = root / FOLDER
    reason = _why_not(disk, folder, tail)
    if not reason:
        try:
            saved = _saved_before(disk, folder, log, tail) or _copy(disk, folder, log, tail)
        except OSError as error:
            reason = str(error)
        else:
            _log.warning(
                "commit log tail truncated and saved: physical_offset=%d end=%d bytes=%d "
                "whole_records=%d saved_in=%s; inspect it with: roquet store dump %s",
                tail.at, tail.end, tail.size, tail.records, saved, saved,
            )  # fmt: skip
            return saved
    _log.warning(
        "commit log tail truncated, not saved: physical_offset=%d end=%d bytes=%d whole_records=%d "
        "reason=%s", tail.at, tail.end, tail.size, tail.records, reason,
    )  # fmt: skip
    return None


def _why_not(disk: Disk, folder: Path, tail: TruncatedTail) -> str:
    """Why a tail cannot be saved; empty if it can."""
    used = disk.used_ratio(folder)
    if used > _FULLEST:
        return f"the drive is used to {used:.0%}"
    if tail.size > SIZE_MAX:
        return f"more than {SIZE_MAX} bytes"
    if not tail.records and len(disk.folders(folder)) >= WITHOUT_RECORDS_MAX:
        return (
            f"no record in it is whole, and {folder} has {WITHOUT_RECORDS_MAX} folders already: "
            "delete some"
        )
    return ""


def _saved_before(disk: Disk, folder: Path, log: CommitLog, tail: TruncatedTail) -> Path | None:
    """The folder that has these bytes already, if there is one.

    A broker that is restarted again and again, and ends each time before the log is truncated, must
    not fill the drive with copies: on a full drive messages are deleted before their time.
    """
    names = [name for name in disk.folders(folder) if name.startswith(f"{tail.at:0{NAME_DIGITS}d}")]
    return next((folder / name for name in names if _has_all(disk, folder / name, log, tail)), None)


def _has_all(disk: Disk, saved: Path, log: CommitLog, tail: TruncatedTail) -> bool:
    """Whether a folder has every byte of a tail, durably.

    It may have more: the process that saved it may have erased the log's tail in part, from its
    end.
    """
    try:
        for start in _file_starts(log, tail):
            file = disk.reopen(saved / "commitlog" / file_name(start), log.file_size)
            try:
                pieces_of_file = (
                    (at, data.rstrip(b"\0")) for at, data in _data_of_file(log, tail, start)
                )
                if any(file.read(at - start, len(data)) != data for at, data in pieces_of_file):
                    return False
                file.sync(0, log.file_size)
            finally:
                file.close()
    except UnreadableFile:
        return False
    return True


def _file_starts(log: CommitLog, tail: TruncatedTail) -> range:
    """The starts of the files that have bytes of the tail."""
    return range(tail.at - tail.at % log.file_size, tail.end, log.file_size)


def _data_of_file(log: CommitLog, tail: TruncatedTail, start: int) -> Iterator[tuple[int, bytes]]:
    """`_data` of the tail in the file that begins at `start`."""
    in_file = _data(log, max(tail.at, start))
    return takewhile(lambda piece: piece[0] < start + log.file_size, in_file)


def _copy(disk: Disk, folder: Path, log: CommitLog, tail: TruncatedTail) -> Path:
    """Copy a tail to a new folder in `folder`, durably."""
    name = f"{tail.at:0{NAME_DIGITS}d}"
    taken = set(disk.folders(folder))
    free = chain([name], (f"{name}-{number}" for number in count(2)))
    copy = folder / next(each for each in free if each not in taken)
    for start in _file_starts(log, tail):
        path = copy / "commitlog" / file_name(start)
        file = disk.open(path, log.file_size)
        try:
            for at, data in _data_of_file(log, tail, start):
                file.write(at - start, data)
            file.sync(0, log.file_size)
        except OSError:
            file.close()
            disk.delete(path)
            raise
        file.close()
    return copy
