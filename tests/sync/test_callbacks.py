"""A thread that waits for a call does meanwhile what it is asked for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roquet import ConfigError
from roquet.sync.callbacks import Caller, check_plain


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
