"""A coroutine is run to its end wherever it is asked for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roquet.spark.pipelines._shared.run_sync import run_sync


async def where() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


async def failing() -> None:
    raise ZeroDivisionError


def test_without_a_loop_it_runs_here() -> None:
    assert run_sync(where) == threading.get_ident()


async def test_below_a_running_loop_it_runs_in_a_thread_that_ends() -> None:
    before = threading.active_count()

    assert run_sync(where) != threading.get_ident()
    assert threading.active_count() == before


async def test_what_it_raises_is_raised_to_who_asked() -> None:
    with pytest.raises(ZeroDivisionError):
        run_sync(failing)
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(run_sync, failing)
