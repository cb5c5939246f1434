"""A thread with an event loop of its own, which can be made to stand still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_LAST_TURNS: Final = 10
"""Turns that asyncio needs to open and abort a connection, with some to spare."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class LoopThread:
    """A thread that runs an event loop until `end`; other threads call its methods.

    The thread does not keep the interpreter alive.

    Invariant: while it stands still, its loop runs nothing. The system goes on to accept
    connections and bytes for its sockets.

    :param name: of the thread.
    :param loop_factory: makes the loop; None for asyncio's own.
    """

    def __init__(self, name: str, loop_factory: LoopFactory | None = None) -> None:
        self._loop = (loop_factory or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._go_on: threading.Event | None = None

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop):
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call_soon(self, work: Callable[[], object]) -> None:
        """Call a function in the loop, before anything that arrives at a socket from now on."""
        self._loop.call_soon_threadsafe(work)

    @property
    def is_paused(self) -> bool:
        return self._go_on is not None

    def pause(self) -> None:
        """Let the loop stand still. When this returns, it does."""
        stands_still, self._go_on = threading.Event(), threading.Event()
        self._loop.call_soon_threadsafe(_stand_still, stands_still, self._go_on)
        stands_still.wait()

    def resume(self) -> None:
        """Let the loop go on."""
        if self._go_on is not None:
            self._go_on.set()
            self._go_on = None

    def end(self) -> None:
        """End loop and thread; tasks that are left are cancelled."""
        self.resume()
        self.run(_last_turns())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _last_turns() -> None:
    """Let the loop close what is half-way: a connection that was accepted last is not open yet."""
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)


def _stand_still(stands_still: threading.Event, go_on: threading.Event) -> None:
    stands_still.set()
    go_on.wait()
