"""The first signal asks a program to stop, a second one has the effect that it had before."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from roquet.common.stop_signals import stopping_on
from roquet.errors import ConfigError


async def test_the_first_signal_stops_and_the_second_has_its_former_effect() -> None:
    calls: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append("former"))
    try:
        with stopping_on([signal.SIGUSR1], lambda: calls.append("stop")):
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(called(calls, 1), 30)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(called(calls, 2), 30)
        assert calls == ["stop", "former"]
    finally:
        signal.signal(signal.SIGUSR1, before)


async def called(calls: list[str], count: int) -> None:
    while len(calls) < count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_signal_wakes_a_loop_that_waits(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def wait() -> None:
        stopped = asyncio.Event()
        with stopping_on([signal.SIGUSR1], stopped.set):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            await asyncio.wait_for(stopped.wait(), 30)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(wait())


async def test_one_signal_stops_all_that_wait_for_it() -> None:
    """The first of them that ended gave the signal its default effect, which ends the program."""
    calls: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append("former"))
    try:
        with stopping_on([signal.SIGUSR1], lambda: calls.append("outer")):
            with stopping_on([signal.SIGUSR1], lambda: calls.append("ended")):
                pass
            with stopping_on([signal.SIGUSR1, signal.SIGUSR1], lambda: calls.append("inner")):
                os.kill(os.getpid(), signal.SIGUSR1)
                await asyncio.wait_for(called(calls, 2), 30)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(called(calls, 3), 30)
        assert calls == ["outer", "inner", "former"]
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_a_handler_that_the_application_sets_meanwhile_stays() -> None:
    def of_application(*_: object) -> None:
        pass

    before = signal.getsignal(signal.SIGUSR1)
    try:
        with stopping_on([signal.SIGUSR1], lambda: None):
            signal.signal(signal.SIGUSR1, of_application)
        assert signal.getsignal(signal.SIGUSR1) is of_application
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_after_the_block_a_signal_has_its_former_effect() -> None:
    def former(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGUSR2, former)
    of_termination = signal.getsignal(signal.SIGTERM)
    try:
        with stopping_on([signal.SIGUSR2, signal.SIGTERM], lambda: None):
            assert signal.getsignal(signal.SIGUSR2) is not former
        assert signal.getsignal(signal.SIGUSR2) is former
        assert signal.getsignal(signal.SIGTERM) is of_termination
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_another_thread_than_the_main_one_is_refused() -> None:
    errors: list[str] = []

    async def block() -> None:
        with (
            pytest.raises(ConfigError, match="only the main thread") as refused,
            stopping_on([signal.SIGTERM], lambda: None),
        ):
            pass
        errors.append(str(refused.value))
        with stopping_on([], lambda: None):
            errors.append("none needed")

    thread = threading.Thread(target=lambda: asyncio.run(block()))
    thread.start()
    thread.join()
    assert errors[1:] == ["none needed"]


@pytest.mark.parametrize("signals", [signal.SIGTERM, ["SIGTERM"], [0], [[]], [70]])
def test_what_is_no_list_of_signals_is_refused(signals: Any) -> None:
    with (
        pytest.raises(ConfigError, match="give a list of signals, such as"),
        stopping_on(signals, lambda: None),
    ):
        pass


def test_a_signal_that_nobody_can_handle_is_refused_each_time() -> None:
    before = signal.getsignal(signal.SIGTERM)
    for _ in range(2):
        with (
            pytest.raises(ConfigError, match=r"no program can handle .*SIGKILL"),
            stopping_on([signal.SIGTERM, signal.SIGKILL], lambda: None),
        ):
            pass
    assert signal.getsignal(signal.SIGTERM) == before
