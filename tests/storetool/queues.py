"""Consume queues of a few entries, without a log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roquet.storage.queues.consume_queue import ENTRY, ENTRY_SIZE
from roquet.storetool.files import series
from roquet.storetool.read.queue_entries import QueueEntries

IN_FILE: Final = 10
"""Entries of a segment."""
SIZE: Final = 100
"""Bytes of each record; record `n` is at physical offset 100 n."""


def written(folder: Path, first: int, entries: list[bytes], *, without: int = -1) -> QueueEntries:
    """Segments of entries from queue offset `first` on, which begins one; `without` is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(entries)
    for start in range(0, len(data), IN_FILE * ENTRY_SIZE):
        name = first * ENTRY_SIZE + start
        if name // ENTRY_SIZE != without:
            piece = data[start : start + IN_FILE * ENTRY_SIZE].ljust(IN_FILE * ENTRY_SIZE, b"\0")
            (folder / f"{name:020d}").write_bytes(piece)
    return QueueEntries(series([folder], IN_FILE * ENTRY_SIZE), series([folder / "none"]))


def entries(first: int, count: int) -> list[bytes]:
    return [ENTRY.pack(SIZE * number, SIZE, number) for number in range(first, first + count)]
