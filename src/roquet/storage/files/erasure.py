"""Erases the bytes after the valid end of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from roquet.storage.files.disk import DiskFile

_PAGE: Final = 4096
_COMPARED_AT_ONCE: Final = 64 * 1024
_ZEROS: Final = bytes(_COMPARED_AT_ONCE)


def erase(file: DiskFile, at: int) -> bool:
    """Zero all bytes from `at` on, without a sync.

    The last page is zeroed first, each page by one write. If the process is killed meanwhile, the
    file ends earlier, and the next start truncates it at the same offset. Pages of zeros are not
    written: the drive may have no room for them.

    :returns: whether there were other bytes than zeros.
    :raises OSError: a page could not be read or written; the pages after it are zero.
    """
    pages = list(_pages_with_data(file, at))
    for page in reversed(pages):
        file.write(page, _ZEROS[: min(file.size, page - page % _PAGE + _PAGE) - page])
    return bool(pages)


def _pages_with_data(file: DiskFile, at: int) -> Iterator[int]:
    """Starts of the pages that are not all zero; the first page is taken to begin at `at`."""
    while (at := file.next_data(at)) < file.size:
        end = min(file.size, at - at % _COMPARED_AT_ONCE + _COMPARED_AT_ONCE)
        data = file.read(at, end - at)
        if data != _ZEROS[: end - at]:
            pages = [at, *range(at - at % _PAGE + _PAGE, end, _PAGE)]
            yield from (
                page for page in pages if any(data[page - at : page - at - page % _PAGE + _PAGE])
            )
        at = end
