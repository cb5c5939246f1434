"""Functions of the application that are called in threads, never in that of the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Generic, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Job: TypeAlias = Callable[[], None]


class CallOutcome(Generic[T]):
    """What a function returned or raised in another thread. It is made in the event loop.

    :param ended: called in the loop when the function has ended.
    """

    def __init__(self, ended: Callable[[], None] = lambda: None) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()
        """Has the outcome. If it is cancelled, the function goes on all the same."""
        self._error: BaseException | None = None
        self._results: list[T] = []

    def of(self, function: Callable[[], T]) -> None:
        """In the other thread: call the function.

        Exceptions that are no `Exception` are raised here: they end what the thread does.
        """
        try:
            self._results.append(function())
        except StopIteration as error:  # a future does not take it
            self._error = _ended_with(error)
        except Exception as error:
            self._error = error
        except BaseException as error:
            self._error = _ended_with(error)
            raise
        finally:
            with suppress(RuntimeError):  # the loop ended meanwhile
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._ended()
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._results[0])
        else:
            self.future.set_exception(self._error)


def _ended_with(error: BaseException) -> RuntimeError:
    return RuntimeError(f"a callback ended with {error!r}")


class ThreadFunction(Generic[P, T]):
    """A function that is called in one of `CallbackThreads`: `await` its call, or `begin` it."""

    def __init__(self, threads: CallbackThreads, function: Callable[P, T]) -> None:
        self._threads = threads
        self._function = function

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.begin(*args, **kwargs)

    def begin(self, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Have the function called. It goes on if the future is cancelled."""
        # with the context variables of the caller, as `asyncio.to_thread` does
        context = copy_context()
        return self._threads.call(lambda: context.run(self._function, *args, **kwargs))


class CallbackThreads:
    """Threads that call functions of the application, as many as there are calls at a time.

    They are no `ThreadPoolExecutor`. That one refuses work as soon as the main thread has ended,
    while a consumer in another thread may go on; and the end of the process would wait for ever for
    a function that hangs.
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

    def runs(self, function: Callable[P, T]) -> ThreadFunction[P, T]:
        """As a coroutine function: has `function` called in one of these threads."""
        return ThreadFunction(self, function)

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in one of these threads.

        :raises RuntimeError: another thread is needed, and the system starts none.
        """
        outcome: CallOutcome[T] = CallOutcome(self._ended)
        if self._busy == self._count:
            name = f"{self._name}-{self._count + 1}"
            threading.Thread(target=self._main, name=name, daemon=True).start()
            self._count += 1  # not before: no thread would read the job of the next call
        self._busy += 1
        self._inbox.put(lambda: outcome.of(function))
        return outcome.future

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
