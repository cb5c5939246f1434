"""Zeros in the place of what stands behind the end of a file's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from roquet.storage.files.disk import DiskFile

_PAGE: Final = 4096
_COMPARED_AT_ONCE: Final = 64 * 1024
_ZEROS: Final = bytes(_COMPARED_AT_ONCE)


def erase(file: DiskFile, at: int) -> bool:
    """Make everything from byte `at` on zero; tells whether something else stood there. It is not durable after that.

    The last page goes first, each in one write: a process that is killed meanwhile leaves a file that ends earlier, and
    the next start cuts it at the same place. Pages of zeros are not written: they may have no room on the drive.

    :raises OSError: a page could not be read or written; those behind it are zero.
    """
    pages = list(_pages_with_data(file, at))
    for page in reversed(pages):
        file.write(page, _ZEROS[: min(file.size, page - page % _PAGE + _PAGE) - page])
    return bool(pages)


def _pages_with_data(file: DiskFile, at: int) -> Iterator[int]:
    """Where the pages begin, the first one at `at`, in which a byte is not zero."""
    while (at := file.next_data(at)) < file.size:
        end = min(file.size, at - at % _COMPARED_AT_ONCE + _COMPARED_AT_ONCE)
        data = file.read(at, end - at)
        if data != _ZEROS[: end - at]:
            pages = [at, *range(at - at % _PAGE + _PAGE, end, _PAGE)]
            yield from (
                page for page in pages if any(data[page - at : page - at - page % _PAGE + _PAGE])
            )
        at = end
