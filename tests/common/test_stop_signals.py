"""The first signal asks a program to stop, a second one has the effect that it had before."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

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
