"""A queue by itself: what a crash may leave of its files, and where it goes on then."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.storage.consume_queue import BLANK_ENTRY, ENTRY_SIZE, ConsumeQueue
from roquet.storage.disk import RealDisk
from roquet.storage.segments import file_name

FILE_SIZE = 20 * ENTRY_SIZE


def loaded(folder: Path) -> ConsumeQueue:
    queue = ConsumeQueue(RealDisk(), folder, FILE_SIZE, "orders", 0)
    queue.load()
    return queue


@pytest.mark.parametrize("blanks", [0, 5])
def test_a_file_without_an_entry_says_nothing_about_where_the_queue_begins(tmp_path: Path, blanks: int) -> None:
    (tmp_path / file_name(0)).write_bytes((BLANK_ENTRY * blanks).ljust(FILE_SIZE, b"\0"))
    queue = loaded(tmp_path)
    queue.put(13, 32768, 100, 7)
    assert (queue.min_offset, queue.max_offset) == (13, 14)
    queue.close()
    queue = loaded(tmp_path)
    queue.correct_min_offset(0)
    assert (queue.min_offset, queue.max_offset, queue.entry(13)) == (13, 14, (32768, 100, 7))
    queue.close()
