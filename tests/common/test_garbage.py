"""What the collector of garbage goes through in a server."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from roquet.common.garbage import look_at_all, look_at_each_once


class Thing:
    def __init__(self) -> None:
        self.itself: Thing | None = self


@pytest.fixture
def loaded() -> Iterator[list[list[int]]]:
    """What a server has when it starts to serve."""
    kept = [[number] for number in range(400_000)]
    undo = look_at_each_once()
    yield kept
    undo()


def full_look() -> int:
    """How many objects there are to look through."""
    gc.collect()
    return len(gc.get_objects())


def test_what_outlives_one_full_look_is_not_looked_at_by_the_next(loaded: list[list[int]]) -> None:
    kept = [[number] for number in range(100_000)]

    assert full_look() < 10_000
    assert len(kept) == 100_000


@pytest.mark.parametrize("again", [False, True])
def test_looks_come_while_few_objects_are_new(loaded: list[list[int]], again: bool) -> None:
    looked_at: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looked_at.append(len(gc.get_objects(2)))

    if again:
        look_at_all()
    gc.callbacks.append(count)
    try:
        kept = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(count)

    assert len(kept) == 300_000
    assert len(looked_at) >= 3
    assert max(looked_at) < 60_000


def test_a_cycle_of_frozen_objects_is_found_when_all_are_looked_at(loaded: list[list[int]]) -> None:
    thing = Thing()
    seen = ref(thing)
    gc.collect()
    del thing
    gc.collect()
    assert seen() is not None

    look_at_all()

    assert seen() is None
    assert full_look() < 10_000


def test_all_is_as_it_was_afterwards() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    look_at_each_once()()

    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0
