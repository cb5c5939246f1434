"""What the collector of garbage goes through in a server."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from roquet.garbage import look_at_each_once

DAY_S = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Thing:
    def __init__(self) -> None:
        self.itself: Thing | None = self


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    undo = look_at_each_once(clock)
    yield clock
    undo()


def full_look() -> int:
    """How many objects there are to look through."""
    gc.collect()
    return len(gc.get_objects())


def test_what_outlives_one_full_look_is_not_looked_at_by_the_next(clock: Clock) -> None:
    kept = [[number] for number in range(100_000)]

    assert full_look() < 10_000
    assert len(kept) == 100_000


def test_looks_come_while_few_objects_are_new(clock: Clock) -> None:
    looked_at: list[int] = []
    gc.callbacks.append(
        lambda phase, info: (
            looked_at.append(len(gc.get_objects(2))) if phase == "start" and info["generation"] == 2 else None
        )
    )
    try:
        kept = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.pop()

    assert len(kept) == 300_000
    assert len(looked_at) >= 3
    assert max(looked_at) < 60_000


def test_a_cycle_of_frozen_objects_is_found_by_the_look_of_the_day(clock: Clock) -> None:
    thing = Thing()
    seen = ref(thing)
    gc.collect()
    del thing
    gc.collect()
    assert seen() is not None

    clock.now_s = DAY_S
    gc.collect()
    gc.collect()

    assert seen() is None
    assert full_look() < 10_000


def test_all_is_as_it_was_afterwards() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    look_at_each_once()()

    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0
