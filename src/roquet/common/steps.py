"""PURE: work that goes through thousands of things, in steps; whoever carries it out does other work in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

PART: Final = 32
"""Things that are done in one step where each takes some microseconds."""

Steps: TypeAlias = Generator[None, None, T]
"""Work that yields after each step, of 0.1 ms or less. What it goes through may change between two steps."""


def in_parts(items: Iterable[T], size: int = PART) -> Iterator[list[T]]:
    """The items, so many at a time."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def in_one(work: Callable[[], T]) -> Callable[[], Steps[T]]:
    """Short work as work of one step."""

    def steps() -> Steps[T]:
        yield
        return work()

    return steps


def finished(work: Steps[T]) -> T:
    """What the work returns, all its steps taken at once; for who has nothing else to do."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
