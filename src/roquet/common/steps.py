"""PURE: long work in steps, between which its caller does other work."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

PART: Final = 32
"""Items per step, if each takes some microseconds."""

Steps: TypeAlias = Generator[None, None, T]
"""Work that yields after each step of 0.1 ms or less. Its data may change between two steps."""


def in_parts(items: Iterable[T], size: int = PART) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def in_one(work: Callable[[], T]) -> Callable[[], Steps[T]]:
    """Turn a function into work of one step."""

    def steps() -> Steps[T]:
        yield
        return work()

    return steps


def finished(work: Steps[T]) -> T:
    """Run all steps at once and return the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
