"""Signals that ask a program to stop, such as SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

from roquet.errors import ConfigError

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


@contextmanager
def stopping_on(signals: Iterable[int], stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first of these signals: in the running event loop, if there is one.

    Without a running loop it is called between two instructions of the main thread, as every
    handler of Python's is.

    A second signal of the same kind has the effect that it had before, so that a program which does
    not stop can still be ended. At the end of the block all signals have that effect.

    :raises ConfigError: this is not the main thread, the only one that may handle signals.
    """
    numbers = list(signals)
    if numbers and threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "stop_signals: only the main thread can handle signals; in this one, call stop()"
        )
    loop = _running_loop()
    former: dict[int, _Handler] = {}

    def restore(number: int) -> None:
        if number in former:
            _remove(loop, number)
            signal.signal(number, former.pop(number))

    def first(number: int) -> None:
        restore(number)
        stop()

    try:
        for number in numbers:
            former[number] = signal.getsignal(number)
            _add(loop, number, first)
        yield
    finally:
        for number in numbers:
            restore(number)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _add(loop: asyncio.AbstractEventLoop | None, number: int, first: Callable[[int], None]) -> None:
    if loop is None:
        signal.signal(number, lambda *_: first(number))
        return
    try:
        loop.add_signal_handler(number, first, number)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(first, number))


def _remove(loop: asyncio.AbstractEventLoop | None, number: int) -> None:
    if loop is None:
        return
    try:
        loop.remove_signal_handler(number)
    except NotImplementedError:  # Windows
        return
