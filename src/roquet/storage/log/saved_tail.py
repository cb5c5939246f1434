"""The end of a log, saved before it is cut off: a folder that `roquet store dump` reads like any other store.

`<store>/lost/<physical offset>[-N]/commitlog/` has the bytes at the physical offsets they had, in files of the log's
size whose other parts are holes, so that it takes no more room on the drive than what is saved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Final

from roquet.common.units import PhysicalOffset
from roquet.errors import CorruptRecord, UnreadableFile
from roquet.storage.files.disk import Disk
from roquet.storage.files.segments import NAME_DIGITS, file_name
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.holes import Hole, HoleScanner, pieces

_log = logging.getLogger(__name__)

FOLDER: Final = "lost"
SIZE_MAX: Final = 1 << 30
"""Bytes of one tail that are saved."""
WITHOUT_RECORDS_MAX: Final = 16
"""So many folders may be there when one is made for bytes without a whole record: each crash may leave such bytes."""
_FULLEST: Final = 0.95
"""A drive used beyond this share is left alone."""
_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class TailToCut:
    """What a log has behind the place where it is going to end: `size` bytes, up to the last that is not zero, with so
    many whole `records` in them."""

    at: PhysicalOffset
    end: PhysicalOffset
    records: int

    @property
    def size(self) -> int:
        return self.end - self.at


def tail_from(log: CommitLog, at: PhysicalOffset) -> TailToCut | None:
    """What stands in the log's files from `at` on; None: only zeros."""
    end = at
    for start, data in _data(log, at):
        end = PhysicalOffset(start + len(data.rstrip(b"\0")))
    return TailToCut(at, end, _whole_records(log, at)) if end > at else None


def _data(log: CommitLog, at: PhysicalOffset) -> Iterator[tuple[PhysicalOffset, bytes]]:
    """Pieces that are not all zeros, and where they stand."""
    at = log.next_data(at)
    while at < log.readable_to:
        data = log.read(at, _PIECE - at % _PIECE)
        if not data:
            return
        if data.strip(b"\0"):
            yield at, data
        at = log.next_data(PhysicalOffset(at + len(data)))


def _whole_records(log: CommitLog, at: PhysicalOffset) -> int:
    records = 0
    try:
        for piece in pieces(log, at, HoleScanner(log, at_once=SIZE_MAX), verify=True):
            records += 0 if isinstance(piece, Hole) else len(piece)
    except CorruptRecord:
        pass
    return records


def save(disk: Disk, root: Path, log: CommitLog, tail: TailToCut) -> Path | None:
    """Copy a tail below the store's folder, durably; the folder, None where that cannot be. One log line says which.

    :param root: the store's folder.
    """
    folder = root / FOLDER
    why = _why_not(disk, folder, tail)
    if not why:
        try:
            saved = _saved_before(disk, folder, log, tail) or _copy(disk, folder, log, tail)
        except OSError as error:
            why = f"it could not be saved: {error}"
        else:
            _log.warning(
                "end of the log cut off physical_offset=%d end=%d bytes=%d whole_records=%d saved_in=%s; "
                "look at it with: roquet store dump %s",
                tail.at, tail.end, tail.size, tail.records, saved, saved,
            )  # fmt: skip
            return saved
    _log.warning(
        "end of the log cut off physical_offset=%d end=%d bytes=%d whole_records=%d not saved: %s",
        tail.at, tail.end, tail.size, tail.records, why,
    )  # fmt: skip
    return None


def _why_not(disk: Disk, folder: Path, tail: TailToCut) -> str:
    """Why a tail is not saved; nothing where it can be."""
    used = disk.used_ratio(folder)
    if used > _FULLEST:
        return f"the drive is used to {used:.0%}"
    if tail.size > SIZE_MAX:
        return f"more than {SIZE_MAX} bytes"
    if not tail.records and len(disk.folders(folder)) >= WITHOUT_RECORDS_MAX:
        return f"no record in it is whole, and {folder} has {WITHOUT_RECORDS_MAX} folders already: delete some"
    return ""


def _saved_before(disk: Disk, folder: Path, log: CommitLog, tail: TailToCut) -> Path | None:
    """The folder that has these bytes already: whoever is started again and again, and ends before the log is cut, must
    not fill the drive with copies. A drive that is full lets messages go before their time.
    """
    names = [name for name in disk.folders(folder) if name.startswith(f"{tail.at:0{NAME_DIGITS}d}")]
    return next((folder / name for name in names if _has_all(disk, folder / name, log, tail)), None)


def _has_all(disk: Disk, saved: Path, log: CommitLog, tail: TailToCut) -> bool:
    """Whether a folder has every byte of a tail, durably. It may have more: whoever saved it may have begun to erase it
    from its end.
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


def _file_starts(log: CommitLog, tail: TailToCut) -> range:
    """Where the files begin that have bytes of the tail."""
    return range(tail.at - tail.at % log.file_size, tail.end, log.file_size)


def _data_of_file(
    log: CommitLog, tail: TailToCut, start: int
) -> Iterator[tuple[PhysicalOffset, bytes]]:
    """As `_data`, of the file that begins at `start`."""
    in_file = _data(log, PhysicalOffset(max(tail.at, start)))
    return takewhile(lambda piece: piece[0] < start + log.file_size, in_file)


def _copy(disk: Disk, folder: Path, log: CommitLog, tail: TailToCut) -> Path:
    name = f"{tail.at:0{NAME_DIGITS}d}"
    taken = set(disk.folders(folder))
    free = next(
        each
        for each in chain([name], (f"{name}-{number}" for number in count(2)))
        if each not in taken
    )
    return _copied(disk, folder / free, log, tail)


def _copied(disk: Disk, folder: Path, log: CommitLog, tail: TailToCut) -> Path:
    size = log.file_size
    for start in _file_starts(log, tail):
        path = folder / "commitlog" / file_name(start)
        file = disk.open(path, size)
        try:
            for at, data in _data_of_file(log, tail, start):
                file.write(at - start, data)
            file.sync(0, size)
        except OSError:
            file.close()
            disk.delete(path)
            raise
        file.close()
    return folder
