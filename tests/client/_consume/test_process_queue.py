"""Progress is the lowest message not done, whatever the order in which they are done."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roquet.client._consume.process_queue import ProcessQueue


def taken(*offsets: int, next_offset: int, start: int = 0) -> ProcessQueue:
    queue = ProcessQueue(start)
    queue.take([(offset, 10) for offset in offsets], next_offset)
    return queue


def test_the_offset_stays_at_the_lowest_message_not_done() -> None:
    queue = taken(0, 1, 2, next_offset=3)
    queue.done(1)
    queue.done(2)
    assert queue.consumer_offset == 0
    queue.done(0)
    assert queue.consumer_offset == 3


def test_without_messages_the_offset_follows_the_pulls() -> None:
    queue = taken(next_offset=40, start=7)
    assert queue.consumer_offset == 40


def test_messages_passed_over_by_a_filter_count_as_done() -> None:
    queue = taken(4, next_offset=90)
    queue.done(4)
    assert queue.consumer_offset == 90


def test_a_message_is_done_once() -> None:
    queue = taken(4, next_offset=5)
    assert queue.done(4)
    assert not queue.done(4)
    assert not queue.done(99)


def test_what_a_broker_gives_again_counts_once() -> None:
    """Its bytes would never be done with: the queue would have no room for ever."""
    queue = taken(4, 5, next_offset=6)
    queue.take([(4, 10), (5, 10), (6, 10)], 7)
    assert (queue.has(5), queue.count, queue.size) == (True, 3, 30)
    for offset in (4, 5, 6):
        queue.done(offset)
    assert (queue.has(5), queue.count, queue.size) == (False, 0, 0)


def test_the_offset_is_the_lowest_message_not_done_if_a_broker_goes_back() -> None:
    """Else what it gives late would be lost when the process ends."""
    queue = taken(4, 6, 5, next_offset=7)
    queue.done(4)
    assert (queue.consumer_offset, queue.span) == (5, 1)
    queue.take([(2, 10)], 3)
    queue.done(5)
    assert (queue.consumer_offset, queue.span) == (2, 4)


def test_count_size_and_span_are_of_what_is_not_done() -> None:
    queue = taken(10, 11, 500, next_offset=501)
    queue.done(11)
    assert (queue.count, queue.size, queue.span) == (2, 20, 490)


def test_each_message_done_is_reported() -> None:
    counts: list[int] = []
    queue = ProcessQueue(0, lambda: counts.append(queue.count))
    queue.take([(0, 1), (1, 1)], 2)
    queue.done(1)
    queue.done(0)
    queue.done(0)
    assert counts == [1, 0]


class AnyOrder(RuleBasedStateMachine):
    """Against a set of the offsets not done."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(0)
        self.open: set[int] = set()
        self.next = 0
        self.last_offset = 0

    @rule(steps=st.lists(st.integers(1, 5), max_size=6), beyond=st.integers(0, 3))
    def take(self, steps: list[int], beyond: int) -> None:
        offsets = []
        for step in steps:
            self.next += step
            offsets.append(self.next - 1)
        self.next += beyond
        self.queue.take([(offset, offset % 7) for offset in offsets], self.next)
        self.open.update(offsets)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.open)))
        self.open.remove(offset)
        assert self.queue.done(offset)

    @invariant()
    def agrees(self) -> None:
        assert self.queue.consumer_offset == min(self.open, default=self.next)
        assert self.queue.consumer_offset >= self.last_offset
        self.last_offset = self.queue.consumer_offset
        assert self.queue.count == len(self.open)
        assert self.queue.size == sum(offset % 7 for offset in self.open)
        assert self.queue.span == (max(self.open) - min(self.open) if self.open else 0)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=30)
