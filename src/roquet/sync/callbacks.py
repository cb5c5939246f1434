"""Functions of the application that a blocking client calls: never in the thread of its loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

from roquet.common.callables import is_coroutine_function
from roquet.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

Job: TypeAlias = Callable[[], None]


class _Outcome:
    """What a function returned or raised in another thread.

    :param ended: called in the loop when the function has ended.
    """

    def __init__(self, ended: Callable[[], None] = lambda: None) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._error: BaseException | None = None
        self._results: list[Any] = []

    def of(self, function: Callable[[], object]) -> None:
        """In the other thread: call the function.

        Exceptions that are no `Exception` are raised here: they end what the thread does.
        """
        try:
            self._results.append(function())
        except Exception as error:
            self._error = error
        except BaseException as error:
            self._error = RuntimeError(f"a callback ended with {error!r}")
            raise
        finally:
            with suppress(RuntimeError):  # the loop ended meanwhile
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._ended()
        if not self._future.done():
            self._future.set_result(None)

    async def get(self) -> Any:
        await self._future
        if self._error is not None:
            raise self._error
        return self._results[0]


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
            outcome = _Outcome()
            self._inbox.put(lambda: outcome.of(lambda: function(*args, **kwargs)))
            result: T = await outcome.get()
            return result

        return run


class CallbackThreads:
    """Threads that call functions of the application, as many as there are calls at a time.

    They are no `ThreadPoolExecutor`, because that one refuses work as soon as the main thread has
    ended, while a consumer in another thread may go on.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._count = 0
        self._busy = 0
        self._in_callback = threading.local()

    @property
    def is_caller(self) -> bool:
        """Whether the caller is one of these threads, in a function of the application."""
        return getattr(self._in_callback, "value", False)

    def runs(self, function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """A coroutine function that has `function` called in one of these threads."""

        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            outcome = _Outcome(self._ended)
            if self._busy == self._count:
                self._count += 1
                name = f"{self._name}-{self._count}"
                threading.Thread(target=self._main, name=name, daemon=True).start()
            self._busy += 1
            # with the context variables of the caller, as `asyncio.to_thread` does
            context = copy_context()
            self._inbox.put(lambda: outcome.of(lambda: context.run(function, *args, **kwargs)))
            result: T = await outcome.get()
            return result

        return run

    def _main(self) -> None:
        self._in_callback.value = True
        while (job := self._inbox.get()) is not None:
            # `sys.exit` in a callback ends the callback, not this thread.
            with suppress(BaseException):
                job()

    def _ended(self) -> None:
        self._busy -= 1

    def close(self) -> None:
        """Let the threads end, each after what it does now."""
        for _ in range(self._count):
            self._inbox.put(None)


def check_plain(name: str, function: object) -> None:
    """Check that an argument is a function that can be called in a thread.

    :raises ConfigError: it is something else; the message names it.
    """
    if is_coroutine_function(function) or not callable(function):
        raise ConfigError(
            f"{name} is {function!r}: give a plain function; "
            "coroutine functions are for the asyncio client"
        )
