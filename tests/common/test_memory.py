"""What the allocator keeps, seen by what the next buffers cost; what the garbage collector looks at."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest

from roquet.common.memory import UNKNOWN_SIZE, collect_all, freeze_survivors, physical_memory
from tests.allocation import BUFFERS, IS_GLIBC, ROUNDS, SIZE

needs_glibc = pytest.mark.skipif(not IS_GLIBC, reason="only glibc's malloc is set")

CODE = """
from roquet.common.memory import keep_freed_memory
from tests.allocation import page_faults

keep_freed_memory()
print(page_faults())
"""


def page_faults(**environment: str) -> int:
    """Those of a process that has set its malloc."""
    command = [sys.executable, "-c", CODE]
    env, folder = os.environ | environment, Path(__file__).parents[2]
    return int(
        subprocess.run(
            command, env=env, cwd=folder, capture_output=True, text=True, check=True
        ).stdout
    )


@needs_glibc
def test_freed_buffers_are_there_for_the_next_ones() -> None:
    assert page_faults() < 1000


@needs_glibc
def test_what_the_environment_says_of_malloc_counts() -> None:
    pages = ROUNDS * BUFFERS * SIZE // os.sysconf("SC_PAGESIZE")

    assert page_faults(MALLOC_TRIM_THRESHOLD_="131072") > pages / 2


def test_a_system_that_does_not_tell_its_memory_has_as_much_as_apache_takes_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert physical_memory() > 1 << 20
    monkeypatch.setattr(sys, "platform", "win32")

    assert physical_memory() == UNKNOWN_SIZE


# garbage collection


class Thing:
    def __init__(self) -> None:
        self.itself: Thing | None = self


@pytest.fixture
def loaded() -> Iterator[list[list[int]]]:
    """What a server has when it starts to serve."""
    kept = [[number] for number in range(400_000)]
    undo = freeze_survivors()
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
        collect_all()
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

    collect_all()

    assert seen() is None
    assert full_look() < 10_000


def test_all_is_as_it_was_afterwards() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    freeze_survivors()()

    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0
