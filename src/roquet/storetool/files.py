"""Finds the files of a store directory and the sizes that they should have.

No file is opened for writing, and none is mapped: a running broker may truncate its files
meanwhile, and an access to the mapping would then end the process with SIGBUS.

See docs/storage/files.md#names-and-sizes-are-exact.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import Final

from roquet.errors import StoreError
from roquet.storage.files.segments import NAME_DIGITS, file_name, is_number
from roquet.storage.index.layout import NAME_DIGITS as INDEX_NAME_DIGITS
from roquet.storage.queues.consume_queue import ENTRY_SIZE

QUEUE_FILE_SIZE: Final = 300_000 * ENTRY_SIZE
"""Apache's default in bytes."""
_AT_ONCE: Final = 1 << 20
"""Bytes of one read."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A segment of the log or of a queue.

    :param start: the offset of its first byte in the log or the queue.
    :param size: its size in bytes when it was found.
    """

    path: Path
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class StrayFile:
    """A file in the wrong place, or of the wrong size; `text` says what is wrong."""

    path: Path
    text: str


@dataclass(slots=True)
class SegmentFiles:
    """The segments of the log or of a queue, in the order of their offsets.

    :param folders: the directories that the segments are in.
    :param file_size: the size in bytes that each should have; 0 if there are none.
    """

    folders: Sequence[Path]
    file_size: int
    files: list[DataFile] = field(default_factory=list)
    strays: list[StrayFile] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges (end exclusive) between two segments that no segment has."""

    @property
    def start(self) -> int:
        """The offset of the first segment's first byte."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """The offset after the last segment at its full size."""
        return self.files[-1].start + self.file_size if self.files else 0

    def file_at(self, at: int) -> DataFile | None:
        """Return the segment whose range has offset `at`, or None."""
        for file in reversed(self.files):
            if file.start <= at:
                return file if at < file.start + self.file_size else None
        return None

    def look_again(self) -> None:
        """List the segments again: a broker may have created or deleted some."""
        if self.file_size:
            self.files = series(self.folders, self.file_size).files

    def place(self, at: int) -> tuple[Path, int]:
        """Return the segment of offset `at`, and the byte in it.

        If there is no such segment, the path is the one that it would have.
        """
        file = self.file_at(at)
        if file is not None:
            return file.path, at - file.start
        start = at - at % self.file_size if self.file_size else 0
        return self.folders[0] / file_name(start), at - start

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes from `at` on, from one segment; none if it is deleted."""
        file = self.file_at(at)
        return b"" if file is None else read_at(file.path, at - file.start, size)

    def read_spans(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each span (start, end exclusive); no span may cross a segment's end.

        The kernel is advised of all spans first, so that the drive gets all reads at once.
        """
        pieces: list[bytes] = []
        for file, group in groupby(spans, lambda span: self.file_at(span[0])):
            here = list(group)
            pieces += [b""] * len(here) if file is None else _read_spans(file, here)
        return pieces


def _read_spans(file: DataFile, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of each span of one segment; empty ones if it is deleted."""
    try:
        with file.path.open("rb", buffering=0) as opened:
            parts = [(start - file.start, end - start) for start, end in spans]
            if sys.platform == "linux":
                for at, size in parts:
                    os.posix_fadvise(opened.fileno(), at, size, os.POSIX_FADV_WILLNEED)
            return [_read(opened, at, size) for at, size in parts]
    except FileNotFoundError:
        return [b""] * len(spans)


def read_at(path: Path, at: int, size: int) -> bytes:
    """Return up to `size` bytes of a file from byte `at` on; none if there is no such file."""
    try:
        with path.open("rb", buffering=0) as file:
            return _read(file, at, size)
    except FileNotFoundError:
        return b""


def _read(file: FileIO, at: int, size: int) -> bytes:
    file.seek(at)
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(size)):  # a read may bring fewer bytes
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def data_pieces(path: Path, at: int) -> Iterator[tuple[int, bytes]]:
    """Read a file from byte `at` on without its holes: each piece's first byte, and its bytes."""
    try:
        with path.open("rb", buffering=0) as file:
            while True:
                at = _next_data(file.fileno(), at)
                file.seek(at)
                data = file.read(_AT_ONCE)
                if not data:
                    return
                yield at, data
                at += len(data)
    except FileNotFoundError:
        return


def _next_data(descriptor: int, at: int) -> int:
    """Return the first byte from `at` on that is in no hole; the file's size if there is none."""
    if not hasattr(os, "SEEK_DATA"):
        return at
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError:
        return os.fstat(descriptor).st_size


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from error


def queue_folders(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield topic, queue id and path of each queue's folder below `folder`, sorted by name."""
    for topic in _entries(folder):
        for queue in _entries(Path(topic.path)):
            if is_number(queue.name) and queue.is_dir():
                yield topic.name, int(queue.name), Path(queue.path)


def _named(folders: Sequence[Path]) -> tuple[list[DataFile], list[StrayFile]]:
    """Return the files whose names are offsets, in their order, and the files with other names."""
    files: list[DataFile] = []
    strays: list[StrayFile] = []
    for folder in folders:
        for entry in _entries(folder):
            path = Path(entry.path)
            if len(entry.name) == NAME_DIGITS and is_number(entry.name) and entry.is_file():
                files.append(DataFile(path, int(entry.name), entry.stat().st_size))
            else:
                text = "does not belong here, no broker starts with such a file: move it away"
                strays.append(StrayFile(path, text))
    return sorted(files, key=lambda file: file.start), strays


def series(folders: Sequence[Path], file_size: int | None = None) -> SegmentFiles:
    """Find the segments in some folders.

    :param file_size: bytes; if None, it follows from the segments' names and sizes.
    """
    files, strays = _named(folders)
    if files and files[-1].size == 0:  # a crash interrupted its creation, the next start deletes it
        files.pop()
    size = file_size or _size_of(files)
    found = SegmentFiles(folders, size, [], strays)
    for file in files:
        wrong = _wrong(file, size, found.files)
        if wrong:
            found.strays.append(StrayFile(file.path, wrong))
        if file.start % size or (found.files and file.start == found.files[-1].start):
            continue
        if found.files and file.start != found.end:
            found.gaps.append((found.end, file.start))
        found.files.append(file)
    return found


def _wrong(file: DataFile, size: int, before: list[DataFile]) -> str:
    """Return what is wrong with a segment's name or size, or an empty text."""
    if file.start % size:
        return f"its name is no multiple of the file size {size}"
    if before and before[-1].start == file.start:
        return f"is there twice, also as {before[-1].path}"
    return "" if file.size == size else f"has {file.size} bytes, the file size is {size}"


def _size_of(files: Sequence[DataFile]) -> int:
    """Return the most frequent size of which the file's own name is a multiple; 0 without files.

    If there is no such size, it is 1: all files are then reported.
    """
    return _most_frequent(
        (file.size for file in files if file.size and file.start % file.size == 0),
        default=1 if files else 0,
    )


def _most_frequent(sizes: Iterable[int], default: int) -> int:
    """Return the most frequent size, the largest of several; `default` if there is none."""
    counts = Counter(sizes)
    return max(counts, key=lambda size: (counts[size], size), default=default)


@dataclass(slots=True)
class StoreFiles:
    """All files of one store. Its queues include those of deleted topics."""

    root: Path
    log: SegmentFiles
    queues: dict[tuple[str, int], SegmentFiles]
    queue_file_size: int
    """Bytes; 0 if it is not known, because the store has no file of a queue."""
    index: list[Path]
    strays: list[StrayFile]

    def name(self, path: Path) -> str:
        """Return a path relative to the store's folder, if it is below that."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def find_files(
    root: Path,
    log_folders: Sequence[Path] = (),
    log_file_size: int | None = None,
    queue_file_size: int | None = None,
) -> StoreFiles:
    """Find the files of the store at `root`.

    :param log_folders: the directories of the commit log; `root/commitlog` if empty.
    :param log_file_size: bytes; by default it follows from the files, as `queue_file_size`.
    :raises StoreError: there is no store at `root`.
    """
    log = series(list(log_folders) or [root / "commitlog"], log_file_size)
    if not root.is_dir():
        raise StoreError(f"{root} is not a folder")
    if (
        not log.files
        and not (root / "consumequeue").is_dir()
        and not (root / "checkpoint").exists()
    ):
        raise StoreError(
            f"{root} is not a store: it has no commitlog, consumequeue or checkpoint; "
            "if the log is elsewhere, name its folder with --commitlog"
        )
    size = queue_file_size or _queue_file_size(root / "consumequeue")
    found = StoreFiles(root, log, find_queues(root, size), size, [], [])
    for entry in _entries(root / "index"):
        if len(entry.name) == INDEX_NAME_DIGITS and is_number(entry.name):
            found.index.append(Path(entry.path))
    return found


def find_queues(root: Path, file_size: int) -> dict[tuple[str, int], SegmentFiles]:
    """Find the queues of the store at `root`, by topic and queue id.

    :param file_size: bytes of a segment; 0 stands for Apache's default.
    """
    return {
        (topic, queue_id): series([folder], file_size or QUEUE_FILE_SIZE)
        for topic, queue_id, folder in queue_folders(root / "consumequeue")
    }


def _queue_file_size(folder: Path) -> int:
    """Return the most frequent size of queue files, 0 if there are none."""
    return _most_frequent(
        (
            file.size
            for *_, queue_folder in queue_folders(folder)
            for file in _named([queue_folder])[0]
            if file.size and file.size % ENTRY_SIZE == 0
        ),
        default=0,
    )
