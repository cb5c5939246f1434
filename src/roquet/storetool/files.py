"""Which files a store directory holds, and how large they are meant to be.

Nothing is opened for writing, nothing is mapped: a running broker may cut and grow its files meanwhile.

See docs/storage/files.md#names-and-sizes-are-exact.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
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
"""Apache's default, bytes."""
_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file whose first byte has the offset `start` in the log or the queue; `size` in bytes, when it was found."""

    path: Path
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class StrayFile:
    """A file where it does not belong, or not of the size it should have: what is wrong, in words."""

    path: Path
    text: str


@dataclass(slots=True)
class SegmentFiles:
    """The files of one byte range, by their offsets; `file_size` is what each of them should have, 0 without files."""

    folders: Sequence[Path]
    file_size: int
    files: list[DataFile] = field(default_factory=list)
    strays: list[StrayFile] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges between two files for which there is none."""

    @property
    def start(self) -> int:
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        return self.files[-1].start + self.file_size if self.files else 0

    def file_at(self, at: int) -> DataFile | None:
        """The file that should hold byte `at`."""
        for file in reversed(self.files):
            if file.start <= at:
                return file if at < file.start + self.file_size else None
        return None

    def look_again(self) -> None:
        """Take note of files that a broker has made or deleted since."""
        if self.file_size:
            self.files = series(self.folders, self.file_size).files

    def place(self, at: int) -> tuple[Path, int]:
        """File and byte in it of byte `at`; the path that the file would have where there is none."""
        file = self.file_at(at)
        if file is not None:
            return file.path, at - file.start
        start = at - at % self.file_size if self.file_size else 0
        return self.folders[0] / file_name(start), at - start

    def read(self, at: int, size: int) -> bytes:
        """The bytes there are from `at` on in the file that holds it, at most `size`; none once it is deleted."""
        file = self.file_at(at)
        return b"" if file is None else read_at(file.path, at - file.start, size)

    def read_spans(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes there are of each span from one offset to another, none of which crosses a file's end.

        The system is told of all of them first: where they are not in memory, the drive gets them in one go.
        """
        pieces: list[bytes] = []
        for file, group in groupby(spans, lambda span: self.file_at(span[0])):
            here = [(start, end - start) for start, end in group]
            pieces += [b""] * len(here) if file is None else _read_parts(file, here)
        return pieces


def _read_parts(file: DataFile, parts: Sequence[tuple[int, int]]) -> list[bytes]:
    """What a file has of each part, given by offset and size; nothing once the file is deleted."""
    try:
        with file.path.open("rb", buffering=0) as opened:
            if hasattr(os, "posix_fadvise"):
                for at, size in parts:
                    os.posix_fadvise(opened.fileno(), at - file.start, size, os.POSIX_FADV_WILLNEED)
            return [_read_part(opened, at - file.start, size) for at, size in parts]
    except FileNotFoundError:
        return [b""] * len(parts)


def _read_part(opened: FileIO, at: int, size: int) -> bytes:
    opened.seek(at)
    return opened.read(size)


def read_at(path: Path, at: int, size: int) -> bytes:
    """Up to `size` bytes of a file from byte `at` on; none where there is no such file."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(at)
            pieces: list[bytes] = []
            while size > 0 and (piece := file.read(size)):
                pieces.append(piece)
                size -= len(piece)
    except FileNotFoundError:
        return b""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def data_pieces(path: Path, at: int) -> Iterator[tuple[int, bytes]]:
    """What a file holds from byte `at` on but for its holes: where each piece begins, and its bytes."""
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
    """Where, from `at` on, a file may hold something else than a hole; its end where it does not."""
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


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in `folder`."""
    return [entry.name for entry in _entries(folder) if entry.is_dir()]


def _named(folders: Sequence[Path]) -> tuple[list[DataFile], list[StrayFile]]:
    """Files with names as those of a log or a queue have them, by offset, and those with others."""
    files: list[DataFile] = []
    strays: list[StrayFile] = []
    for folder in folders:
        for entry in _entries(folder):
            path = Path(entry.path)
            if len(entry.name) == NAME_DIGITS and is_number(entry.name) and entry.is_file():
                files.append(DataFile(path, int(entry.name), entry.stat().st_size))
            else:
                strays.append(
                    StrayFile(
                        path, "does not belong here: no broker opens a folder with such a file"
                    )
                )
    return sorted(files, key=lambda file: file.start), strays


def series(folders: Sequence[Path], file_size: int | None = None) -> SegmentFiles:
    """The files in some folders. Without `file_size` their names and sizes tell it."""
    files, strays = _named(folders)
    size = file_size or _size_of(files)
    found = SegmentFiles(folders, size, [], strays)
    if files and files[-1].size == 0:  # a crash cut its making short; the next start deletes it
        files.pop()
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
    """What is wrong with a file's name or size; nothing for a good one."""
    if file.start % size:
        return f"its name is no multiple of the file size {size}"
    if before and before[-1].start == file.start:
        return f"is there twice, also as {before[-1].path}"
    return "" if file.size == size else f"has {file.size} bytes, the file size is {size}"


def _size_of(files: Sequence[DataFile]) -> int:
    """The size that most files have and whose multiples their names are; the largest of several."""
    fitting = Counter(file.size for file in files if file.size and file.start % file.size == 0)
    return max(fitting, key=lambda size: (fitting[size], size), default=1)


@dataclass(slots=True)
class StoreFiles:
    """All files of one store. A queue's files may also be of a queue that nobody uses."""

    root: Path
    log: SegmentFiles
    queues: dict[tuple[str, int], SegmentFiles]
    queue_file_size: int
    """Bytes; 0 where no queue file tells it."""
    index: list[Path]
    strays: list[StrayFile]

    def name(self, path: Path) -> str:
        """A path as findings name it: below the store's folder without that."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def find_files(
    root: Path,
    log_folders: Sequence[Path] = (),
    log_file_size: int | None = None,
    queue_file_size: int | None = None,
) -> StoreFiles:
    """The files of the store at `root`; sizes in bytes, where the files should not tell them.

    :raises StoreError: there is no store.
    """
    log = series(list(log_folders) or [root / "commitlog"], log_file_size)
    if not root.is_dir():
        raise StoreError(f"{root} is no folder")
    if (
        not log.files
        and not (root / "consumequeue").is_dir()
        and not (root / "checkpoint").exists()
    ):
        raise StoreError(
            f"{root} is no store: it has no commitlog, consumequeue or checkpoint (--commitlog?)"
        )
    size = queue_file_size or _queue_file_size(root / "consumequeue")
    found = StoreFiles(root, log, find_queues(root, size), size, [], [])
    for entry in _entries(root / "index"):
        if len(entry.name) == INDEX_NAME_DIGITS and is_number(entry.name):
            found.index.append(Path(entry.path))
    return found


def find_queues(root: Path, file_size: int) -> dict[tuple[str, int], SegmentFiles]:
    """The queues of the store at `root` by topic and number; 0 for `file_size`, in bytes, is Apache's default."""
    found: dict[tuple[str, int], SegmentFiles] = {}
    for topic in subfolders(root / "consumequeue"):
        for queue_id in subfolders(root / "consumequeue" / topic):
            if is_number(queue_id):
                folder = root / "consumequeue" / topic / queue_id
                found[topic, int(queue_id)] = series([folder], file_size or QUEUE_FILE_SIZE)
    return found


def _queue_file_size(folder: Path) -> int:
    """The size that most queue files have."""
    sizes: dict[int, int] = {}
    for topic in subfolders(folder):
        for queue_id in subfolders(folder / topic):
            for file in _named([folder / topic / queue_id])[0]:
                if file.size and file.size % ENTRY_SIZE == 0:
                    sizes[file.size] = sizes.get(file.size, 0) + 1
    return max(sizes, key=lambda size: (sizes[size], size), default=0)
