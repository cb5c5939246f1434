"""PURE: messages of one queue that were taken and are not yet done; the lowest of them is the progress."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from roquet.common.units import LONG_MIN


class ProcessQueue:
    """Keeps: every message below `progress` is done, none at or above it needs to be lost; it falls only where a broker
    goes back. Offsets in `_sizes` ascend.

    Offsets are queue offsets, sizes are bytes. `dropped`: the queue was taken away, nothing more of it is handed over.

    :param on_done: called whenever a message is done.
    """

    def __init__(self, start: int, on_done: Callable[[], None] = lambda: None) -> None:
        self.dropped = False
        self._on_done = on_done
        self._taken_up_to = start
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self.size = 0

    def take(self, messages: Iterable[tuple[int, int]], next_offset: int) -> None:
        """Messages (offset and size) came with a pull after which `next_offset` comes next. One that is still to be
        done counts once, however often a broker gives it.
        """
        sizes, ascend = self._sizes, True
        last = next(reversed(sizes), LONG_MIN)
        for offset, size in messages:
            if offset in sizes:
                continue
            ascend &= offset > last
            last = offset
            sizes[offset] = size
            self.size += size
        if not ascend:
            self._sizes = OrderedDict(sorted(sizes.items()))
        self._taken_up_to = max(self._taken_up_to, next_offset)

    def has(self, offset: int) -> bool:
        """Whether the message was taken and is still to be done."""
        return offset in self._sizes

    def done(self, offset: int) -> bool:
        """Whether the message was still to be done; it is not now."""
        size = self._sizes.pop(offset, None)
        if size is None:
            return False
        self.size -= size
        self._on_done()
        return True

    @property
    def progress(self) -> int:
        """Where a new owner of the queue has to start: the lowest message not done, else the end of what was taken."""
        return next(iter(self._sizes), self._taken_up_to)

    @property
    def count(self) -> int:
        return len(self._sizes)

    @property
    def span(self) -> int:
        """How far the last message is ahead of the first."""
        return next(reversed(self._sizes)) - next(iter(self._sizes)) if self._sizes else 0
