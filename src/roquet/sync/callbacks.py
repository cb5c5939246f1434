"""The thread of a blocking call, which the asyncio client may ask to call a function meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from roquet.common.callables import is_coroutine_function
from roquet.common.callback_threads import CallOutcome, Job
from roquet.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


class Caller:
    """A thread that waits for the result of a call, and may be asked to do something meanwhile."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()

    def wait(self, seconds: float) -> bool:
        """Wait until the result is there, or this long; return whether it is.

        What the thread is asked to do, it does here.
        """
        try:
            while (job := self._inbox.get(timeout=seconds)) is not None:
                job()
        except Empty:
            return False
        return True

    def wake(self) -> None:
        """The result is there."""
        self._inbox.put(None)

    def runs(self, function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """A coroutine function that has `function` called in the thread that waits."""

        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            outcome: CallOutcome[T] = CallOutcome()
            self._inbox.put(lambda: outcome.of(lambda: function(*args, **kwargs)))
            return await outcome.future

        return run


def check_plain(name: str, function: object) -> None:
    """Check that an argument is a function that can be called in a thread.

    :raises ConfigError: it is something else; the message names it.
    """
    if is_coroutine_function(function) or not callable(function):
        raise ConfigError(
            f"{name} is {function!r}: give a plain function; "
            "coroutine functions are for the asyncio client"
        )
