"""Functions of the application run in threads, as many as there are calls at a time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roquet import ConfigError
from roquet.sync.callbacks import CallbackThreads, Caller, check_plain


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

    with pytest.raises(KeyError):
        await threads.runs(fail)()
    with pytest.raises(RuntimeError, match="a callback ended with SystemExit"):
        await threads.runs(leave)()
    assert await threads.runs(threading.current_thread)() is not threading.current_thread()
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


def test_a_caller_does_meanwhile_what_it_is_asked_for() -> None:
    caller = Caller()
    seen: list[object] = []

    async def work() -> None:
        seen.append(await caller.runs(threading.current_thread)())
        caller.wake()

    loop = threading.Thread(target=asyncio.run, args=(work(),))
    loop.start()
    assert caller.wait(30)
    loop.join()
    assert seen == [threading.current_thread()]
    assert not caller.wait(0.001)


async def coroutine() -> None:
    pass


@pytest.mark.parametrize("wrong", [coroutine, None, "check"])
def test_what_is_no_plain_function_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="give a plain function"):
        check_plain("check", wrong)
    check_plain("check", print)
