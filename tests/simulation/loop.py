"""An asyncio event loop whose time is a number: it jumps to the next timer as soon as nothing is
left to do.

Nothing sleeps, no socket is watched, threads run one at a time and while the loop waits. What runs
and in which order follows from the program alone: callbacks in the order they were asked for,
timers by their time and then by that order, sets of tasks by age.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import math
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar, TypeVarTuple

from tests.simulation.threads import Process, Threads, Work, current_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EVENTS_PER_INSTANT_MAX: Final = 100_000
"""More callbacks than this without any time passing is a loop that spins."""
CANCELLED_TIMERS_MIN: Final = 100
"""So many cancelled timers may lie around before it is worth looking whether they are the
majority.
"""
PENDING_SHOWN_MAX: Final = 12


class SimulationError(AssertionError):
    """The simulated program did what no correct program does; the message says what, the cause is
    the exception.
    """


class DeadlockError(SimulationError):
    """Somebody waits, and nothing is left that could ever wake him."""


class RunawayError(SimulationError):
    """The program does not come to rest: too many events, or too much virtual time."""


class NotReachedError(SimulationError):
    """What was waited for did not happen within the virtual time allowed for it."""


class UnhandledError(SimulationError):
    """An exception left a callback or a task, and nobody took it."""


class VirtualTask(asyncio.Task[Any]):
    """A task that knows its process, and whose place in a set follows from its age, not from its
    address in memory.
    """

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        number: int,
        **options: Any,
    ) -> None:
        self._number = number
        context: Context | None = options.get("context")
        self.process = current_process.get() if context is None else context.get(current_process)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Invariant: `time()` moves only while nothing is ready, and only to the next timer or to the end
    of a `run_for`.

    :param seconds_max: virtual time after which the program counts as a runaway.
    :param events_max: the same in callbacks.
    """

    # What asyncio's own base class keeps and this class works on.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, seconds_max: float = 86_400.0, events_max: int = 20_000_000) -> None:
        super().__init__()
        self.seconds_max = seconds_max
        self.events_max = events_max
        self.events = 0
        self.after_event: list[Callable[[], None]] = []
        self.tasks: weakref.WeakValueDictionary[int, VirtualTask] = weakref.WeakValueDictionary()
        self._now = 0.0
        self._horizon = math.inf
        self._may_idle = False
        self._jumped_at_event = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._tasks_made = 0
        self._unhandled: list[dict[str, Any]] = []
        self._threads = Threads(self._is_something_due)
        self.set_task_factory(self._new_task)

    # time

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._refuse_when_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1

    def _forget_cancelled_timers(self) -> None:
        timers = self._timers
        if (
            self._timers_cancelled > CANCELLED_TIMERS_MIN
            and self._timers_cancelled > len(timers) // 2
        ):
            timers[:] = [entry for entry in timers if not entry[2].cancelled()]
            heapq.heapify(timers)
            self._timers_cancelled = 0
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)

    def _jump(self) -> None:
        """Nothing is ready: go to the next timer, or to the horizon where that comes first."""
        self._forget_cancelled_timers()
        timers = self._timers
        if not timers and not self._may_idle:
            raise DeadlockError(f"nothing will ever happen again; {self.describe_pending()}")
        when = timers[0][0] if timers else math.inf
        if when > self._horizon:
            self._now = self._horizon
            self.stop()
            return
        if when > self.seconds_max:
            raise RunawayError(
                f"more than {self.seconds_max:.0f} virtual seconds; {self.describe_pending()}"
            )
        if when > self._now:
            self._now = when
            self._jumped_at_event = self.events
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    # running

    def _run_once(self) -> None:
        """One callback, then the checks. (asyncio's own `run_forever` calls this until somebody
        calls `stop`.)
        """
        if not self._ready:
            if self._stopping:
                return
            self._jump()
            if self._stopping:
                return
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        self.events += 1
        handle._run()
        if self._unhandled:
            self.raise_unhandled()
        for check in self.after_event:
            check()
        if (
            self.events - self._jumped_at_event > EVENTS_PER_INSTANT_MAX
            or self.events > self.events_max
        ):
            raise RunawayError(
                f"{self.events} events, and no end of them; {self.describe_pending()}"
            )

    def run_forever(self) -> None:
        """Collects no garbage meanwhile: finalizers would run at moments that differ from run to
        run.
        """
        self._jumped_at_event = self.events
        collecting = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            if collecting:
                gc.enable()

    def run_for(self, seconds: float) -> None:
        """Let so much virtual time pass, whether or not anything happens in it."""
        self._run_to_horizon(self._now + seconds, may_idle=True)

    def run_until(self, reached: Callable[[], bool], within_s: float) -> None:
        """Stop right after the event that makes `reached` true.

        :raises NotReachedError: it was not within that virtual time.
        """
        if reached():
            return

        def stop_there() -> None:
            if reached():
                self.stop()

        self.after_event.append(stop_there)
        try:
            self._run_to_horizon(self._now + within_s, may_idle=False)
        finally:
            self.after_event.remove(stop_there)
        if not reached():
            raise NotReachedError(
                f"not reached within {within_s} virtual seconds; {self.describe_pending()}"
            )

    def _run_to_horizon(self, horizon: float, may_idle: bool) -> None:
        self._horizon, self._may_idle = horizon, may_idle
        try:
            self.run_forever()
        finally:
            self._horizon, self._may_idle = math.inf, False

    def _refuse_when_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def close(self) -> None:
        self._threads.end()
        super().close()
        self._timers.clear()

    # tasks and threads

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **options: Any,
    ) -> asyncio.Task[T]:
        self._tasks_made += 1
        task = VirtualTask(coro, self._tasks_made, loop=loop, **options)
        self.tasks[self._tasks_made] = task
        return task

    def pending_tasks(self, process: Process | None = None) -> list[VirtualTask]:
        """The tasks of this process, or of all, that are not done, oldest first."""
        tasks = list(self.tasks.values())
        return [
            task
            for task in tasks
            if not task.done() and (process is None or task.process is process)
        ]

    def describe_pending(self) -> str:
        """Who waits and where, for the message of an error."""
        pending = self.pending_tasks()
        shown = [_where_it_waits(task) for task in pending[:PENDING_SHOWN_MAX]]
        rest = [f"... and {len(pending) - len(shown)} more"] if len(pending) > len(shown) else []
        return "\n  ".join([f"{len(pending)} tasks pending at {self._now:.6f} s:", *shown, *rest])

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Runs `func` in a thread, from a later instant on; the loop goes on wherever that waits or
        uses a drive.

        There are always enough threads, so calls made close together may run in another order.
        """
        self._refuse_when_closed()
        answer: asyncio.Future[T] = self.create_future()
        process = current_process.get()
        delay_s = 0.0 if process is None else process.blocking_delay_s()
        self.call_later(delay_s, self._begin_blocking, process, func, args, answer)
        return answer

    def _begin_blocking(
        self,
        process: Process | None,
        func: Callable[[*Ts], T],
        args: tuple[*Ts],
        answer: asyncio.Future[T],
    ) -> None:
        if answer.cancelled() or (process is not None and not process.alive):
            answer.cancel()
            return

        def call() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                self.call_soon(_fail, answer, error)
            else:
                self.call_soon(_answer, answer, result)

        self._advance_blocking(self._threads.begin(process, copy_context(), call))

    def _advance_blocking(self, work: Work) -> None:
        self._threads.advance(work)
        if not work.is_over:
            self.call_later(work.pause_s, self._advance_blocking, work)

    def _is_something_due(self) -> bool:
        return bool(self._ready) or (bool(self._timers) and self._timers[0][0] <= self._now)

    def _write_to_self(self) -> None:
        """No other thread could have to be woken."""

    # errors

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What asyncio would log fails the simulation, unless it comes from a process that is dead
        already.
        """
        owner = _owner(context)
        if owner is None or owner.alive:
            self._unhandled.append(context)

    def raise_unhandled(self) -> None:
        """
        :raises UnhandledError: an exception was left over.
        """
        if not self._unhandled:
            return
        context = self._unhandled.pop(0)
        self._unhandled.clear()
        about = [
            f"{key}={value!r}"
            for key, value in context.items()
            if key not in ("message", "exception")
        ]
        raise UnhandledError(" ".join([str(context.get("message")), *about])) from context.get(
            "exception"
        )


def _answer(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[T], error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    if not answer.done():
        answer.set_exception(error)


def _owner(context: dict[str, Any]) -> Process | None:
    """The process an error comes from, as far as it can be told."""
    task, handle = context.get("task"), context.get("handle")
    if isinstance(task, VirtualTask):
        return task.process
    if isinstance(handle, asyncio.Handle):
        ran_in: Context = handle._context  # type: ignore[attr-defined]
        return ran_in.get(current_process)
    return current_process.get()


def _where_it_waits(task: VirtualTask) -> str:
    frames = task.get_stack()
    place = (
        f"{frames[-1].f_code.co_qualname} line {frames[-1].f_lineno}" if frames else "not started"
    )
    owner = "" if task.process is None else f"{task.process.address} "
    return f"{owner}{task.get_name()}: {place}"
