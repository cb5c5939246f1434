"""PURE: the messages of one queue that are being consumed; the lowest decides the offset."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from roquet.client._consume.statistics import TopicCounters
from roquet.common.java import LONG_MIN


class ProcessQueue:
    """The messages of a queue that were pulled and are not settled yet.

    All offsets are queue offsets, all sizes bytes. `dropped` is True once the queue was taken away;
    none of its messages is delivered after that. `deliverable` is False then, and while the queue
    is paused.

    Invariant: all messages below `consumer_offset` are settled. It falls only if a broker returns
    lower offsets than before. The offsets in `_sizes` ascend.

    :param start: the queue offset of the first pull.
    :param on_done: called whenever a message is settled.
    :param counters: those of the queue's topic; None counts apart.
    :param clock: seconds, to time how long messages take; None does not time them.
    """

    def __init__(
        self,
        start: int,
        on_done: Callable[[], None] = lambda: None,
        counters: TopicCounters | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.dropped = False
        self.deliverable = True
        self.clock = clock
        self.counters = TopicCounters() if counters is None else counters
        self._on_done = on_done
        self._next_offset = start
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self.size = 0

    def drop(self) -> None:
        """Note that the queue was taken away."""
        self.dropped = True
        self.deliverable = False

    def pause(self) -> None:
        """Note that no message is to be delivered now."""
        self.deliverable = False

    def resume(self) -> None:
        """Note that messages may be delivered again."""
        self.deliverable = not self.dropped

    def take(self, messages: Iterable[tuple[int, int]], next_offset: int) -> None:
        """Add the messages of a pull. A message that is here already is not added again.

        :param messages: queue offset and body size of each message.
        :param next_offset: the offset of the next pull.
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
        self._next_offset = max(self._next_offset, next_offset)

    def has(self, offset: int) -> bool:
        """Whether the message is here and not settled."""
        return offset in self._sizes

    def done(self, offset: int) -> bool:
        """Settle a message; return whether it was here."""
        size = self._sizes.pop(offset, None)
        if size is None:
            return False
        self.size -= size
        self._on_done()
        return True

    @property
    def consumer_offset(self) -> int:
        """The lowest unsettled message, else the next one to pull."""
        return next(iter(self._sizes), self._next_offset)

    @property
    def count(self) -> int:
        return len(self._sizes)

    @property
    def span(self) -> int:
        """The distance of the last message from the first, in queue offsets."""
        return next(reversed(self._sizes)) - next(iter(self._sizes)) if self._sizes else 0
