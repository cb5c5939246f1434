"""What the allocator keeps, seen by what the next buffers cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.common.memory import UNKNOWN_SIZE, physical_memory
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
    monkeypatch.delattr(os, "sysconf")

    assert physical_memory() == UNKNOWN_SIZE
