"""Blocking work of simulated processes: in threads that run one at a time, and only while the event
loop waits.

Work gives way before each operation on its drive (`step`) and for as long as one takes (`block`);
the loop goes on meanwhile. When it runs again follows from the seed, so two runs of a seed
interleave in the same way.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable
from contextvars import Context, ContextVar


class DeadProcessError(BaseException):
    """Whatever still runs of a process that is dead must not get any further."""


class Process:
    """One life of a host, from its start to its end: everything that a crash takes away at once belongs to it.

    :param address: of the host.
    :param blocking_delay_s: asked for each call that goes to a thread: how long it waits before it runs.
    :param step_delay_s: asked before each operation of such a call: how long the others run first; 0: those that are
        ready.
    """

    def __init__(
        self,
        address: str,
        blocking_delay_s: Callable[[], float] = lambda: 0.0,
        step_delay_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.address = address
        self.blocking_delay_s = blocking_delay_s
        self.step_delay_s = step_delay_s
        self.alive = True

    def __repr__(self) -> str:
        return f"<process on {self.address}{'' if self.alive else ', dead'}>"


current_process: ContextVar[Process | None] = ContextVar("current_process", default=None)


class _Thread:
    """A thread for one piece of work after the other.

    Invariant: either it runs or whoever called `go_on`, never both.
    """

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._may_run = allocate_lock()
        self._has_paused = allocate_lock()
        self._may_run.acquire()
        self._has_paused.acquire()
        threading.Thread(target=self._run, name="blocking work", daemon=True).start()

    def _run(self) -> None:
        self._may_run.acquire()
        while self._work is not None:
            self._work()
            self.pause()

    def begin(self, work: Callable[[], None]) -> None:
        self._work = work

    def go_on(self) -> None:
        """Let it run until it pauses."""
        self._may_run.release()
        self._has_paused.acquire()

    def pause(self) -> None:
        """Called in the thread: let whoever called `go_on` run, until the next call of that."""
        self._has_paused.release()
        self._may_run.acquire()

    def end(self) -> None:
        """Its work is over, and there is no more."""
        self._work = None
        self._may_run.release()


class Work:
    """One call in a thread.

    Invariant: once its process is dead it gets no further than the operation that it waits for.

    :param others_are_ready: whether the loop would do anything if it ran now.
    """

    def __init__(
        self,
        thread: _Thread,
        process: Process | None,
        context: Context,
        call: Callable[[], None],
        others_are_ready: Callable[[], bool],
    ) -> None:
        self.pause_s = 0.0
        """How long it waits now, in virtual time."""
        self.is_over = False
        self.is_abandoned = False
        self._thread = thread
        self._process = process
        self._others_are_ready = others_are_ready

        def run() -> None:
            context.run(call)
            self.is_over = True

        thread.begin(run)

    def go_on(self) -> None:
        """Let it run until it waits or is over."""
        global _running
        _running = self
        try:
            self._thread.go_on()
        finally:
            _running = None

    def step(self) -> None:
        delay_s = 0.0 if self._process is None else self._process.step_delay_s()
        if delay_s or self._others_are_ready():
            self.wait(delay_s)

    def wait(self, seconds: float) -> None:
        """
        :raises DeadProcessError: its process died meanwhile.
        """
        if not self.is_abandoned:
            self.pause_s = seconds
            self._thread.pause()
        if self.is_abandoned or (self._process is not None and not self._process.alive):
            raise DeadProcessError("blocking work of a dead process")


_running: Work | None = None


def step() -> None:
    """An operation on a drive comes next: where blocking work asks for it, others may run first.

    :raises DeadProcessError: the process of that work died meanwhile.
    """
    if _running is not None:
        _running.step()


def block(seconds: float) -> None:
    """Called from inside blocking work: what it does now takes so long, in virtual time. Elsewhere
    it takes no time.

    :raises DeadProcessError: the process of that work died meanwhile.
    """
    if _running is not None:
        _running.wait(seconds)


class Threads:
    """There are always enough of them; one whose work is over gets the next."""

    def __init__(self, others_are_ready: Callable[[], bool]) -> None:
        self._others_are_ready = others_are_ready
        self._idle: list[_Thread] = []
        self._works: dict[Work, _Thread] = {}

    def begin(self, process: Process | None, context: Context, call: Callable[[], None]) -> Work:
        """Work that `advance` lets run; `call` raises nothing."""
        thread = self._idle.pop() if self._idle else _Thread()
        work = Work(thread, process, context, call, self._others_are_ready)
        self._works[work] = thread
        return work

    def advance(self, work: Work) -> None:
        """Let it run until it waits or is over."""
        work.go_on()
        if work.is_over:
            self._idle.append(self._works.pop(work))

    def end(self) -> None:
        """Nobody is left for whom work is done."""
        for work in list(self._works):
            work.is_abandoned = True
            self.advance(work)
        for thread in self._idle:
            thread.end()
        self._idle.clear()
