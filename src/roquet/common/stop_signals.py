"""Signals that ask a program to stop, such as SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, TypeAlias

from roquet.errors import ConfigError

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


@dataclass(slots=True, eq=False)
class _Taken:
    """The effect that a signal had before, and what it stops now."""

    former: _Handler
    stops: list[Callable[[], object]] = field(default_factory=list)


_TAKEN: Final[dict[int, _Taken]] = {}
"""By signal. Several consumers may wait for one signal: the first takes it over, the last gives it
back. Only the main thread changes this, as it alone handles signals."""


@contextmanager
def stopping_on(signals: Iterable[int], stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first of these signals: in the running event loop, if there is one.

    Without a running loop it is called between two instructions of the main thread, as every
    handler of Python's is.

    A second signal of the same kind has the effect that it had before, so that a program which does
    not stop can still be ended. At the end of the block all signals have that effect.

    :raises ConfigError: a signal cannot be handled; or this is not the main thread, the only one
        that may handle signals.
    """
    numbers = _numbers(signals)
    if numbers and threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "stop_signals: only the main thread can handle signals; in this one, call stop()"
        )
    call = _in_running_loop(stop)
    try:
        for number in numbers:
            if number not in _TAKEN:
                _TAKEN[number] = _take_over(number)
            _TAKEN[number].stops.append(call)
        yield
    finally:
        for number in numbers:
            taken = _TAKEN.get(number)
            if taken is not None and call in taken.stops:
                taken.stops.remove(call)
                if not taken.stops:
                    _give_back(number)


def _numbers(signals: Iterable[int]) -> list[int]:
    try:
        numbers = list(dict.fromkeys(signals))
        is_valid = signal.valid_signals().issuperset(numbers)
    except TypeError:  # not iterable, or not hashable
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"stop_signals is {signals!r}: give a list of signals, such as [signal.SIGTERM]"
        )
    return numbers


def _take_over(number: int) -> _Taken:
    taken = _Taken(signal.getsignal(number))
    try:
        signal.signal(number, _came)
    except (OSError, ValueError) as error:
        raise ConfigError(f"stop_signals: no program can handle {number!r}: {error}") from error
    return taken


def _came(number: int, _: FrameType | None) -> None:
    stops = _TAKEN[number].stops
    _give_back(number)
    for stop in stops:
        stop()


def _give_back(number: int) -> None:
    taken = _TAKEN.pop(number)
    if signal.getsignal(number) is _came:  # else the application has taken it meanwhile
        # None: a library of C has set it, and Python cannot give it back
        signal.signal(number, signal.SIG_DFL if taken.former is None else taken.former)


def _in_running_loop(stop: Callable[[], object]) -> Callable[[], object]:
    """What calls `stop` from a signal's handler; it also wakes a loop that waits."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return lambda: stop()
    return lambda: loop.call_soon_threadsafe(stop)
