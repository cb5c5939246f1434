"""A thread with an event loop that can stand still."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from roquet.dev.loop_thread import LoopThread


async def thread_name() -> str:
    return threading.current_thread().name


def test_a_coroutine_runs_in_the_thread_and_gives_its_result() -> None:
    thread = LoopThread("broker-thread")

    assert thread.run(thread_name()) == "broker-thread"
    thread.end()


def test_while_it_stands_still_nothing_runs_and_later_all_in_order() -> None:
    thread, calls = LoopThread("still"), list[int]()
    thread.pause()
    for number in range(3):
        thread.call_soon(partial(calls.append, number))

    assert thread.is_paused
    assert calls == []
    thread.resume()
    thread.run(thread_name())
    assert calls == [0, 1, 2]
    thread.end()


def test_it_ends_while_it_stands_still_and_cancels_what_is_left() -> None:
    thread, ended = LoopThread("left"), threading.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def leave() -> asyncio.Task[None]:
        return asyncio.create_task(wait_for_ever())

    task = thread.run(leave())
    thread.run(asyncio.sleep(0))
    thread.pause()
    thread.end()

    assert ended.is_set()
    assert task.cancelled()


def test_a_loop_that_cannot_be_made_is_an_error_of_the_caller() -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError("too many open files")

    with pytest.raises(OSError, match="too many open files"):
        LoopThread("none", no_loop)
