"""What all blocking clients have: the asyncio client underneath, and calls of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self, TypeVar
from weakref import WeakSet

from roquet.client._net.session_user import SessionUser
from roquet.client.config import ClientConfig, NameServers
from roquet.common.callback_threads import CallbackThreads
from roquet.errors import ClientStateError
from roquet.sync.background_loop import BackgroundLoop, check_may_block, join_loop, leave_loop
from roquet.sync.callbacks import Caller

if TYPE_CHECKING:
    from roquet.client.metrics import ClientMetrics

C = TypeVar("C", bound=SessionUser)
P = ParamSpec("P")
T = TypeVar("T")


class BlockingUser(Generic[C]):
    """The base class of the blocking clients.

    Use it with `with`, or call `start` and, at the end, `close`. Any thread may call its methods. A
    use before the start, after the close, in a forked process, or by a thread whose event loop runs
    raises `ClientStateError`.

    Invariant: the asyncio client is touched only in the background loop.

    :param client: the asyncio client, not started.
    :param owner: the blocking client whose session it shares.
    :param threads: in which the functions of the application are called.
    """

    _made_by: ClassVar[str] = ""
    """The function that makes such clients; empty if it is the class."""

    def __init__(
        self, client: C, owner: BlockingUser[Any] | None, threads: CallbackThreads | None = None
    ) -> None:
        self._client = client
        self._owner: BlockingUser[Any] | None = owner and (owner._owner or owner)
        self._guests: WeakSet[BlockingUser[Any]] = WeakSet()
        """Those that share its session and were started."""
        self._threads = threads
        self._state_lock = threading.Lock()
        self._is_used = False
        """Whether it was started or closed: neither can be started again."""
        self._loop: BackgroundLoop | None = None
        """The loop in which it was started; None unless it is open."""

    @property
    def config(self) -> ClientConfig:
        """How this client reaches its cluster."""
        return self._client.config

    @property
    def is_open(self) -> bool:
        """Whether it was started, and is not closed."""
        loop = self._loop
        return loop is not None and loop.is_alive and self._client.is_open

    def start(self) -> Self:
        """Connect to a name server, and begin the work in the background. Returns this client.

        :raises ClientStateError: it was started before.
        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        """
        check_may_block()
        with self._state_lock:
            if self._is_used:
                raise ClientStateError(
                    f"this {self._kind} was started before: "
                    "create a new one, as a client cannot be started again"
                )
            self._is_used = True
        if self._owner is None:
            loop = join_loop(self._client)
        else:
            loop = self._owner._open_loop()
            self._owner._guests.add(self)
        self._loop = loop
        try:
            loop.call(self._client.start)
        except BaseException:
            self._leave()
            raise
        return self

    def close(self) -> None:
        """End the work, and close the connections that no other client shares.

        :raises ClientStateError: a callback of it, or of a client that shares its session, calls
            it: that would wait for itself.
        """
        for client in (self, *self._guests):
            client._check_close(self._kind)
        self._is_used = True
        loop = self._loop
        if loop is None or loop.process_id != os.getpid():
            return  # what a parent process opened, this one does not have
        check_may_block()
        try:
            loop.call(self._client.close)
        finally:
            if self._leave():
                loop.join()

    def _check_close(self, closed: str) -> None:
        """Check that none of this client's callbacks closes it or the owner of its session.

        :param closed: the kind of the client that the caller closes.
        """
        if self._loop is not None and self._threads is not None and self._threads.is_caller:
            raise ClientStateError(
                f"close() of this {closed} waits for the callbacks of this {self._kind}, so none "
                "of them can call it: call it in another thread; to end a `run`, call the "
                "consumer's stop()"
            )

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, and has at hand now. No server is asked."""
        return self._call_plain(self._client.metrics)

    def _leave(self) -> bool:
        """The client is closed. Returns whether that ends the loop."""
        for guest in list(self._guests):
            guest._leave()
        loop, self._loop = self._loop, None
        if self._threads is not None:
            self._threads.close()
        return loop is not None and self._owner is None and leave_loop(loop, self._client)

    def __enter__(self) -> Self:
        """Start this client, unless `start` was called."""
        return self if self.is_open else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _is_closed(self) -> bool:
        return self._is_used and self._loop is None

    @property
    def _kind(self) -> str:
        return type(self).__name__

    def _open_loop(self) -> BackgroundLoop:
        """The loop of this client.

        :raises ClientStateError: the client is not open, or this thread may not block.
        """
        loop, kind = self._loop, self._kind
        if loop is None:
            if self._is_closed:
                raise ClientStateError(f"this {kind} was closed: create a new one")
            raise ClientStateError(
                f"this {kind} was not started: use `with {self._made_by or kind}(...)`, "
                "or `client.start()`"
            )
        if loop.process_id != os.getpid():
            raise ClientStateError(
                f"this {kind} was started in process {loop.process_id}, "
                "from which this one was forked: create and start a client after the fork"
            )
        check_may_block()
        return loop

    def _call(
        self,
        work: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a coroutine function of the asyncio client, and wait for the result."""
        return self._open_loop().call(lambda: work(*args, **kwargs))

    def _call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function of the asyncio client in its loop, and wait for the result."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._open_loop().call(call)

    def _call_with(self, caller: Caller, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `_call`. The asyncio client may ask the caller's thread to do something meanwhile."""
        return self._open_loop().call(work, caller=caller)


def underneath(
    name_server: NameServers | ClientConfig | BlockingUser[Any],
) -> tuple[NameServers | ClientConfig | SessionUser, BlockingUser[Any] | None]:
    """What an asyncio client takes for the first argument of a blocking one, and the owner."""
    if isinstance(name_server, BlockingUser):
        return name_server._client, name_server
    return name_server, None
