"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import pytest

from roquet.common.runtime import Runtime

NO_THREAD: Final = "can't start new thread"


async def test_work_for_which_there_is_no_thread_fails_as_the_system_does_and_is_not_done_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    done: list[str] = []
    runtime = Runtime()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match=NO_THREAD):
            await runtime.blocking(lambda: done.append("earliest"))
    await runtime.blocking(lambda: done.append("second"))
    assert done == ["second"]


async def test_what_the_work_raises_itself_stays_what_it_is() -> None:
    def work() -> None:
        raise RuntimeError("the work's own")

    with pytest.raises(RuntimeError, match="own"):
        await Runtime().blocking(work)


async def test_work_whose_waiting_is_cancelled_is_over_before_that_ends() -> None:
    began, may_end, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        began.set()
        may_end.wait(10)
        done.append("work")

    waiting = asyncio.create_task(Runtime().blocking(work))
    while not began.is_set():
        await asyncio.sleep(0)
    for _ in range(2):
        waiting.cancel()
        await asyncio.sleep(0)
    assert not waiting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["work"]
