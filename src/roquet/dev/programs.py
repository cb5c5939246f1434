"""The name server and the brokers of a test cluster: each runs, stops and fails as a process does.

Each has a thread and an event loop of its own, from its start to its end. So a test may block its
own loop, and one program can stand still while the others go on.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from roquet.broker.config.broker import BrokerConfig
from roquet.common.extras import needed_by
from roquet.common.runtime import Runtime, steady_clock_ms, wall_clock_ms
from roquet.dev.loop_thread import LoopFactory, LoopThread
from roquet.errors import ClusterStateError
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.server import NameServer
from roquet.replication.slave import Phase

if TYPE_CHECKING:
    from roquet.broker.server import Broker

LOOPBACK: Final = "127.0.0.1"
NAME_SERVER: Final = "name-server"
"""The name of the name server among the programs of a cluster."""
FOLLOWS_WITHIN_S: Final = 10.0
"""How long the start of a slave waits until it follows its master."""
_LOOK_S: Final = 0.002

T = TypeVar("T")


class Program(ABC):
    """A server in a thread of its own. Its methods may be called from any thread.

    Invariant: `_thread` is None exactly while the program does not run.

    :param name: as the cluster's methods and error messages name it.
    """

    def __init__(self, name: str, loop_factory: LoopFactory | None) -> None:
        self.name = name
        self._loop_factory = loop_factory
        self._lock = threading.RLock()
        self._thread: LoopThread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed since; it may be paused."""
        return self._thread is not None

    @property
    def is_active(self) -> bool:
        """Whether it runs and is not paused."""
        return self.is_running and not self.is_paused

    @property
    def is_paused(self) -> bool:
        return self._thread is not None and self._thread.is_paused

    def start(self) -> None:
        """Start, and return when clients are served.

        :raises ClusterStateError: it runs already.
        """
        with self._lock:
            if self._thread is not None:
                raise ClusterStateError(f"{self.name} runs already")
            self._thread = LoopThread(f"roquet-{self.name}", self._loop_factory)
            try:
                self._thread.run(self._start())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Stop cleanly. A paused program is resumed for that.

        :raises ClusterStateError: it does not run.
        """
        with self._lock:
            thread = self._running("be stopped")
            thread.resume()
            try:
                thread.run(self._stop())
            finally:
                self._end()

    def kill(self) -> None:
        """End at once, as `kill -9` does; a paused program handles nothing more before.

        :raises ClusterStateError: it does not run.
        """
        with self._lock:
            thread = self._running("be killed")
            thread.call_soon(self._disconnect)
            thread.resume()
            try:
                thread.run(self._kill())
            finally:
                self._end()

    def pause(self) -> Pause:
        """Let it stand still, as a process after `kill -STOP`.

        :raises ClusterStateError: it does not run, or is paused already.
        """
        with self._lock:
            thread = self._running("be paused")
            if thread.is_paused:
                raise ClusterStateError(f"{self.name} is paused already")
            thread.pause()
        return Pause(self)

    def resume(self) -> None:
        """Go on after `pause`.

        :raises ClusterStateError: it is not paused.
        """
        with self._lock:
            if not self.is_paused:
                raise ClusterStateError(f"{self.name} is not paused")
            self._running("be resumed").resume()

    def _running(self, what: str) -> LoopThread:
        if self._thread is None:
            raise ClusterStateError(f"{self.name} does not run, it cannot {what}: start it before")
        return self._thread

    def _active(self, what: str) -> LoopThread:
        thread = self._running(what)
        if thread.is_paused:
            raise ClusterStateError(f"{self.name} is paused, it cannot {what}: resume it before")
        return thread

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def _stop(self) -> None: ...

    @abstractmethod
    def _disconnect(self) -> None:
        """Drop all connections and accept no more."""

    @abstractmethod
    async def _kill(self) -> None: ...


class Pause:
    """A program that stands still; as a context manager, until the end of the block."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._program.is_paused:  # the block may have killed or resumed it
            self._program.resume()


class NameServerProgram(Program):
    """The name server of a cluster. It starts again on the port that it had."""

    def __init__(self, config: NamesrvConfig, loop_factory: LoopFactory | None) -> None:
        super().__init__(NAME_SERVER, loop_factory)
        self._config = config
        self._server: NameServer | None = None

    @property
    def port(self) -> int:
        return self._config.listen_port

    async def _start(self) -> None:
        server = NameServer(self._config)
        self._config = replace(self._config, listen_port=await server.start())
        self._server = server

    def _disconnect(self) -> None:
        if self._server is not None:
            self._server.disconnect()

    async def _stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def _kill(self) -> None:
        await self._stop()


class BrokerProgram(Program):
    """A broker of a cluster. It starts again on the ports that it had, with the store as it is.

    :param config: its settings. The address of the name server is given at each start.
    :param failed: called in the broker's thread when a sync of its store failed.
    """

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        failed: Callable[[], None],
        loop_factory: LoopFactory | None,
    ) -> None:
        super().__init__(name, loop_factory)
        self.config = config
        self._failed = failed
        self._broker: Broker | None = None
        self._ahead_ms = 0
        """How far the clocks of this broker are ahead of the system's."""

    @property
    def address(self) -> str:
        return self.config.address

    async def _start(self) -> None:
        with needed_by("roquet.dev"):  # `import *` of a client's installation comes here, too
            from roquet.broker.server import Broker
        ahead_ms = self._ahead_ms
        runtime = Runtime(
            now_ms=lambda: wall_clock_ms() + ahead_ms,
            steady_ms=lambda: steady_clock_ms() + ahead_ms,
        )
        broker = Broker(self.config, runtime, end=self._failed)
        await broker.start()
        self.config, self._broker = broker.config, broker
        try:
            await broker.parts.registrar.register()
        except BaseException:
            await self._kill()
            raise

    async def _stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    def _disconnect(self) -> None:
        if self._broker is not None:
            self._broker.disconnect()

    async def _kill(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.kill()

    def advance(self, ms: int) -> None:
        """Let this much time pass at once for what is stored: delayed messages become due.

        :raises ClusterStateError: it is paused.
        """
        with self._lock:
            if self._thread is None:
                self._ahead_ms += ms
                return
            self._active("advance its clock")
            self.ask(lambda broker: _let_pass(broker, ms))
            self._ahead_ms += ms

    def register(self) -> None:
        """Tell the name server its topics now."""
        with self._lock:
            thread = self._active("register")
            if self._broker is not None:
                thread.run(self._broker.parts.registrar.register())

    def wait_until_it_follows(self) -> None:
        """Wait until this slave follows its master.

        :raises ClusterStateError: it does not within `FOLLOWS_WITHIN_S`.
        """
        with self._lock:
            thread = self._active("follow")
            if self._broker is not None:
                thread.run(_following(self.name, self._broker))

    def ask(self, question: Callable[[Broker], T]) -> T:
        """Call a function with the broker, in the broker's thread.

        :raises ClusterStateError: it does not run, or is paused.
        """
        with self._lock:
            thread, broker = self._active("be asked"), self._broker
            assert broker is not None
            return thread.run(_answer(question, broker))


async def _answer(question: Callable[[Broker], T], broker: Broker) -> T:
    return question(broker)


def _let_pass(broker: Broker, ms: int) -> None:
    broker.parts.clock.let_pass(ms)
    broker.parts.delayed.look()


async def _following(name: str, broker: Broker) -> None:
    """Wait until a slave follows its master.

    :raises ClusterStateError: it does not within `FOLLOWS_WITHIN_S`.
    """
    follower = broker.parts.follower
    assert follower is not None
    try:
        async with asyncio.timeout(FOLLOWS_WITHIN_S):
            while follower.client.phase is not Phase.FOLLOWING:
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        reason = follower.client.status().reason or "its master does not answer"
        raise ClusterStateError(
            f"{name} does not follow its master within {FOLLOWS_WITHIN_S:g} s: {reason}"
        ) from None


def stop_all(programs: Iterable[Program]) -> None:
    """Stop those that run, in this order. All are stopped, even if some cannot stop cleanly.

    :raises BaseException: the first error of a stop.
    """
    errors: list[BaseException] = []
    for program in programs:
        if program.is_running:
            try:
                program.stop()
            except BaseException as error:
                errors.append(error)
    if errors:
        raise errors[0]
