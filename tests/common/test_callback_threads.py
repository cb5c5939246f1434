"""Functions of the application run in threads, as many as there are calls at a time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roquet.common.callback_threads import CallbackThreads


async def test_calls_at_the_same_time_have_a_thread_each_and_later_ones_use_these() -> None:
    threads = CallbackThreads("t")
    together = threading.Barrier(3, timeout=30)

    def work(number: int) -> tuple[int, str]:
        together.wait()
        return number, threading.current_thread().name

    run = threads.runs(work)
    first = await asyncio.gather(*(run(number) for number in range(3)))
    second = await asyncio.gather(*(run(number) for number in range(3)))
    assert [number for number, _ in first] == [0, 1, 2]
    assert {name for _, name in first} == {name for _, name in second} == {"t-1", "t-2", "t-3"}
    threads.close()


async def test_errors_are_raised_and_an_exit_ends_only_the_function() -> None:
    threads = CallbackThreads("t")

    def fail() -> None:
        raise KeyError("x")

    def leave() -> None:
        raise SystemExit(1)

    def stop() -> None:
        raise StopIteration

    with pytest.raises(KeyError):
        await threads.runs(fail)()
    with pytest.raises(RuntimeError, match="a callback ended with SystemExit"):
        await threads.runs(leave)()
    with pytest.raises(RuntimeError, match="a callback ended with StopIteration"):
        await threads.runs(stop)()
    assert await threads.runs(threading.current_thread)() is not threading.current_thread()
    threads.close()


async def test_a_thread_that_does_not_start_holds_up_no_later_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = CallbackThreads("t")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            threads.runs(lambda: 1).begin()
    assert await asyncio.wait_for(threads.runs(lambda: 2)(), 30) == 2
    threads.close()


async def test_a_function_whose_call_is_cancelled_ends_by_itself() -> None:
    threads = CallbackThreads("t")
    go_on = threading.Event()
    call = asyncio.create_task(threads.runs(go_on.wait)(30))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    assert await threads.runs(lambda: threads.is_caller)()
    assert not threads.is_caller
    threads.close()


async def test_a_function_that_was_begun_is_not_cancelled_with_its_future() -> None:
    threads = CallbackThreads("t")
    go_on, ended = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(30)
        ended.set()

    begun = threads.runs(work).begin()
    begun.cancel()
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    threads.close()
