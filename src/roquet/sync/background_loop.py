"""The event loop of the blocking clients: one thread per process, and calls into it."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar

from roquet.client._net.session_user import SessionUser
from roquet.errors import ClientStateError
from roquet.sync.callbacks import Caller

log = logging.getLogger(__name__)

T = TypeVar("T")

Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""Makes the coroutine in the loop: one made before an interrupt would never be awaited."""

WAIT_S: Final = 0.1
"""How long a thread waits at a time. Some exceptions reach it only between two waits: Ctrl-C on
Windows, and those that another thread throws into it.
"""
REST_S_MAX: Final = 5.0
"""How long the loop goes on after the last client for what interrupted calls left to be done."""
EXIT_S_MAX: Final = 5.0
"""How long the end of the interpreter waits for clients that are still open."""
EXIT_DRAIN_S_MAX: Final = 3.0
"""How much of that their handlers have. The rest is for storing offsets and leaving the groups."""


class _Call(Generic[T]):
    """One call from a thread into the loop.

    :param unclaimed: called in the loop with a result that the caller did not get, because it was
        interrupted.
    """

    def __init__(self, work: Work[T], caller: Caller, unclaimed: Callable[[T], object]) -> None:
        self._work = work
        self._caller = caller
        self._unclaimed = unclaimed
        self._task: asyncio.Task[None] | None = None
        self._is_abandoned = False
        self._results: list[T] = []
        self._error: BaseException | None = None

    def begin(self) -> None:
        """In the loop: begin the work, unless its caller has gone."""
        if not self._is_abandoned:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            self._results.append(await self._work())
        except asyncio.CancelledError:
            self._error = _closed()
        # Of no error may it end the loop, which others use.
        except BaseException as error:
            self._error = error
        self._caller.wake()

    def abandon(self) -> None:
        """In the loop: the caller waits no longer."""
        self._is_abandoned = True
        if self._results:
            self._unclaimed(self._results[0])
        elif self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        """In the caller's thread: what the work returned, once it has ended."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        return self._results[0]


class BackgroundLoop:
    """An event loop in a daemon thread, for the blocking clients that are open.

    Invariant: the thread ends after the last of its clients was removed.
    """

    def __init__(self) -> None:
        self.clients: set[SessionUser] = set()
        self.process_id = os.getpid()
        # Not uvloop: what a call costs is the change of threads, which it does not make cheaper.
        self._loop = asyncio.new_event_loop()
        self._is_unused = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="roquet-sync", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs. In a forked process it does not."""
        return self.process_id == os.getpid() and self._thread.is_alive()

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_unused())

    async def _until_unused(self) -> None:
        await self._is_unused.wait()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=REST_S_MAX)

    def call(
        self,
        work: Work[T],
        *,
        caller: Caller | None = None,
        unclaimed: Callable[[T], object] = lambda _: None,
    ) -> T:
        """Run a coroutine function in the loop, and wait for its result.

        An exception that is raised in the waiting thread, `KeyboardInterrupt` for example, cancels
        the coroutine. The thread does not wait for its end.

        :raises ClientStateError: the loop ended.
        """
        caller = caller or Caller()
        call = _Call(work, caller, unclaimed)
        try:
            self.soon(call.begin)
            while not caller.wait(WAIT_S):
                if not self._thread.is_alive():
                    raise _closed()
            # Within the block: an interrupt may come between the wait and the result.
            return call.result()
        except BaseException:
            with suppress(ClientStateError):
                self.soon(call.abandon)
            raise

    def soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop soon, after all that was given to it before.

        :raises ClientStateError: the loop ended.
        """
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            raise _closed() from None

    def end(self) -> None:
        """Let the thread end, once what is left to do is done."""
        with suppress(ClientStateError):
            self.soon(self._is_unused.set)

    def join(self, seconds: float = REST_S_MAX) -> None:
        """Wait for the end of the thread, at most this long."""
        self._thread.join(seconds)

    def close_at_exit(self) -> None:
        """Close all clients, as far as that succeeds within `EXIT_S_MAX`."""
        until_s = time.monotonic() + EXIT_S_MAX
        caller = Caller()
        closing: _Call[None] = _Call(self._close_clients, caller, lambda _: None)
        with suppress(ClientStateError):
            self.soon(closing.begin)
            caller.wait(EXIT_S_MAX)
        self.end()
        # What is still at work, as a handler may be, ends with the process.
        self.join(max(0.0, until_s - time.monotonic()))

    async def _close_clients(self) -> None:
        # A close that is cancelled gives up the handlers that it waits for, and leaves the group.
        async with asyncio.timeout(EXIT_DRAIN_S_MAX):
            await asyncio.gather(*(each.close() for each in self.clients), return_exceptions=True)


class _Shared:
    """The loop that the clients of one process share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: BackgroundLoop | None = None


_shared: Final[dict[int, _Shared]] = {}
"""By process id. A forked process does not touch the lock of its parent, which a thread of that may
have held.
"""


def join_loop(client: SessionUser) -> BackgroundLoop:
    """The loop of this process, for a client that is about to start."""
    shared = _shared.setdefault(os.getpid(), _Shared())
    with shared.lock:
        if shared.loop is None or not shared.loop.is_alive:
            shared.loop = BackgroundLoop()
        shared.loop.clients.add(client)
        return shared.loop


def leave_loop(loop: BackgroundLoop, client: SessionUser) -> bool:
    """Called for a client that is closed. Returns whether it was the last one: the loop ends."""
    shared = _shared.setdefault(os.getpid(), _Shared())
    with shared.lock:
        loop.clients.discard(client)
        if loop.clients or shared.loop is not loop:
            return False
        shared.loop = None
    loop.end()
    return True


@atexit.register
def _at_exit() -> None:
    shared = _shared.get(os.getpid())
    if shared is not None and shared.loop is not None and shared.loop.is_alive:
        shared.loop.close_at_exit()


def check_may_block() -> None:
    """Check that no event loop runs in this thread: a blocking call would hold it up.

    The kernel of a notebook runs cells within its event loop, and expects that they block.

    :raises ClientStateError: an event loop runs.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    kernel = sys.modules.get("ipykernel.kernelapp")
    if kernel is not None and kernel.IPKernelApp.initialized():
        return
    raise ClientStateError(
        "a blocking call within a running event loop would hold up everything in it: "
        "use the asyncio client, `roquet.connect` in place of `roquet.sync.connect`; "
        "or call this in a thread, with `await asyncio.to_thread(...)`"
    )


def _closed() -> ClientStateError:
    return ClientStateError("this client was closed while the call waited")
