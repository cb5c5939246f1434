"""What all clients have: a session, and a life from `start` to `close`."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self, Unpack

from roquet.client._net.hooked_session import session_of
from roquet.client._net.session import Session
from roquet.client._net.tasks import all_together, cancel, each_in_turn
from roquet.client.config import ClientConfig, ClientOptions, NameServers
from roquet.common.arguments import unknown_keyword
from roquet.errors import ClientStateError, ConfigError

if TYPE_CHECKING:
    from roquet.client.metrics import (
        ClientMetrics,
        PartMetrics,
    )

_HERE: Final = {
    "auto_offset_reset": "here it is start",
    "bootstrap_servers": "here it is name_server, the first argument",
    "concurrency": "it is an argument of run",
    "filter": "filters stand with the topics, as in topics={'orders': 'new||paid'}",
    "tags": "filters stand with the topics, as in topics={'orders': 'new||paid'}",
}
"""What other clients call an argument, or where users look for one: how it is given here."""


class SessionUser:
    """The base class of `Client`, producers, consumers and `AdminClient`.

    Use it with `async with`, or call `start` and, at the end, `close`. All methods belong to the
    event loop in which it was started. A use before the start, after the close, from another event
    loop or in a forked process raises `ClientStateError`.

    Invariant: a session is open while its owner is. Those that share it are closed before it.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`; or a
        started client whose session is shared.
    :param options: parameters of `ClientConfig`; they replace those of a given config.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    _made_by: ClassVar[str] = ""
    """The function that makes such clients; empty if it is the class."""

    def __init__(
        self,
        name_server: NameServers | ClientConfig | SessionUser,
        **options: Unpack[ClientOptions],
    ) -> None:
        for name in options:
            if name not in ClientOptions.__annotations__:
                raise self._unknown_argument(name)
        self._owner: SessionUser | None = None
        """The client whose session this one shares."""
        self.config: ClientConfig
        self._session: Session
        if isinstance(name_server, SessionUser):
            if options:
                raise ConfigError(
                    f"{', '.join(options)}: a shared session has its own; "
                    "give this to the client that has the session"
                )
            self._owner = name_server._owner or name_server
            self.config = name_server.config
            self._session = name_server._session
        else:
            self.config = ClientConfig.of(name_server, **options)
            self._session = session_of(self.config)
        self._guests: list[SessionUser] = []
        """Those that share this session and are started, in the order of their start."""
        self._ended: list[PartMetrics] = []
        """What those did that shared this session and were closed before it."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which this was started; None unless it is open."""
        self._process_id = 0
        self._is_used = False
        """Whether it was started or closed: neither can be started again."""
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None

    def _unknown_argument(self, name: str) -> TypeError:
        """What Python raises for an unknown keyword, with the class that the caller named."""
        known = [*inspect.signature(type(self)).parameters, *ClientOptions.__annotations__]
        error = unknown_keyword(self._kind, name, known)
        return TypeError(f"{error}: {_HERE[name]}") if name in _HERE else error

    async def start(self) -> Self:
        """Connect to a name server, and begin the work in the background. Returns this client.

        :raises ClientStateError: it was started before.
        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        """
        if self._is_used:
            raise ClientStateError(
                f"this {self._kind} was started before: "
                "create a new one, as a client cannot be started again"
            )
        if self._owner is not None:
            self._owner._require_open()
            if self._owner._closing is not None:
                raise ClientStateError(
                    f"this {self._kind} cannot be started: the client whose session it shares "
                    "is being closed"
                )
            self._owner._guests.append(self)
        self._is_used = True
        self._loop = asyncio.get_running_loop()
        self._process_id = os.getpid()
        # In a task, so that a close can end the start before it begins.
        self._starting = asyncio.create_task(self._begin(), name=f"start {self._kind}")
        try:
            await self._starting
        except asyncio.CancelledError as error:
            await self.close()
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise self._closed_too_early() from error
        except BaseException:
            await self.close()
            raise
        if self._closing is not None:
            raise self._closed_too_early()
        return self

    async def _begin(self) -> None:
        if self._owner is None:
            await self._session.start()
            await self._session.reach()
        await self._on_start()

    def _closed_too_early(self) -> ClientStateError:
        return ClientStateError(f"this {self._kind} was closed while it started")

    async def close(self) -> None:
        """End the work, and close the connections that no other client shares.

        First it waits for handlers that are at work, as long as their `run` allows, and for sends
        that are gathered. What follows takes 5 s at most, also if servers do not answer: offsets
        are stored and groups are left at those that do.

        A second call waits for the first one. If the caller is cancelled, the step that is under
        way is given up and the others are done.

        :raises ClientStateError: it was started in another event loop, which still runs; or this
            would wait for the caller, as for a handler of a consumer that shares the session.
        """
        loop = self._loop
        if loop is None and self._closing is None:
            self._is_used = True
            return
        if loop is not None and loop.is_closed():
            self._loop = None  # its connections and tasks ended with it
            return
        for client in (self, *self._guests):
            client._check_close()
        if self._closing is None:
            self._require_open()
        await self._close(self._drain)

    async def _close(self, *first: Callable[[], Awaitable[object]]) -> None:
        """Close this, or wait until whoever does so has ended.

        :param first: steps before the work of this client is ended.
        """
        if self._closing is not None:
            await asyncio.shield(self._closing)
        if self._loop is None:
            return
        self._closing = self._loop.create_future()
        try:
            # Not in a task of its own: the end of `asyncio.run` cancels that, perhaps before it
            # begins.
            await each_in_turn(self._end_start, *first, self._finish)
        finally:
            self._closing.set_result(None)

    async def _drain(self) -> None:
        """First of all: handlers that end now may still use all clients of the session."""
        clients = (self, *reversed(self._guests))
        await all_together(*(client._on_closing for client in clients))

    async def _finish(self) -> None:
        guests = list(reversed(self._guests))
        kinds: dict[type[SessionUser], list[SessionUser]] = {}
        for guest in guests:
            kinds.setdefault(type(guest), []).append(guest)
        with self._session.closing():
            await each_in_turn(
                *(
                    partial(all_together, *(guest._close for guest in kind))
                    for kind in kinds.values()
                ),
                # Those whose tasks were cancelled before they began.
                *(guest._close for guest in guests),
                self._on_close,
                self._end_session,
            )

    async def _end_start(self) -> None:
        if self._starting is not None:
            await cancel(self._starting)

    def _check_close(self) -> None:
        """Check that `close` does not wait for its caller.

        :raises ClientStateError: it does.
        """

    async def _end_session(self) -> None:
        self._loop = None
        if self._owner is None:
            await self._session.close()
        else:
            self._owner._guests.remove(self)
            if self._owner._closing is None:
                self._owner._remember(self)

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, and has at hand now. No server is asked.

        :raises ClientStateError: it is not open.
        """
        from roquet.client.metrics import (
            ClientMetrics,
            ConsumerMetrics,
            ProducerMetrics,
            PullConsumerMetrics,
            together,
        )

        self._require_open()
        own = [client._own_metrics() for client in (self, *self._guests)]
        parts = together([*self._ended, *own])
        session = self._session
        return ClientMetrics(
            session.client_id,
            {part.group: part for part in parts if isinstance(part, ProducerMetrics)},
            {part.group: part for part in parts if isinstance(part, ConsumerMetrics)},
            {part.group: part for part in parts if isinstance(part, PullConsumerMetrics)},
            session.connection_metrics(),
            {session.names.plain(topic): age for topic, age in session.routes.ages_ms().items()},
        )

    def _own_metrics(self) -> PartMetrics | None:
        """What this client alone has done; None if its class does nothing that is counted."""
        return None

    def _remember(self, guest: SessionUser) -> None:
        """Keep what a guest did that is closed now."""
        part = guest._own_metrics()
        if part is not None:
            from roquet.client.metrics import with_ended

            self._ended = with_ended(self._ended, part)

    async def _on_start(self) -> None:
        """What a class adds to `start`: its session is open."""

    async def _on_closing(self) -> None:
        """What a class does first when it or its session is closed, while others work.

        It may be called twice, or not at all if the close is cancelled.
        """

    async def _on_close(self) -> None:
        """What a class adds to `close`: its session is still open."""

    async def __aenter__(self) -> Self:
        """Start this client, unless `start` was called: `async with await client.start()`."""
        return self if self.is_open and self._closing is None else await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        """Check that this client is open and belongs to the event loop of the caller.

        :raises ClientStateError: it does not; the message says what to do.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is None or self._loop is not running:
            raise self._misuse()

    @property
    def is_open(self) -> bool:
        """Whether it was started, and is not closed."""
        return self._loop is not None

    @property
    def _kind(self) -> str:
        return type(self).__name__

    def _misuse(self) -> ClientStateError:
        kind = self._kind
        if not self._is_used:
            advice = f"use `async with {self._made_by or kind}(...)`, or `await client.start()`"
            return ClientStateError(f"this {kind} was not started: {advice}")
        if self._loop is None:
            return ClientStateError(f"this {kind} was closed: create a new one")
        if self._process_id != os.getpid():
            return ClientStateError(
                f"this {kind} was started in process {self._process_id}, "
                "from which this one was forked: create and start a client after the fork"
            )
        return ClientStateError(
            f"this {kind} was started in another event loop: use it only in that one, or "
            "`roquet.sync` from threads and from code without event loop"
        )
