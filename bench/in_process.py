"""A broker in this process, for benches that look at its loop or its memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

import uvloop

from roquet.broker.config.broker import read_config
from roquet.broker.server import Broker
from roquet.common.memory import freeze_survivors
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels

TIMEOUT_MS: Final = 120_000
CONNECT_TIMEOUT_S: Final = 60.0
"""Servers and clients share two cores here, and whoever waits for them may wait for seconds."""


class Served(Protocol):
    """A broker with what a bench needs beside it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


AnyServed = TypeVar("AnyServed", bound=Served)
Result = TypeVar("Result")


class Clients:
    """Connections in a process of their own: neither their work nor their garbage is taken for the
    broker's.

    A connection has a number, and is opened when it is used first.
    """

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_begin
        )

    async def call(self, address: str, request: Command, connection: int = 0) -> Command:
        """Ask, with its extension fields and body, and give the answer."""
        return await self.do(_call, connection, address, request)

    async def do(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run a function there; it finds the connections in `connections`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def stop(self) -> None:
        self._pool.shutdown()


class Connections:
    """Of the process of the clients, whose loop is in a thread of its own there."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._channels: dict[int, Channels] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def __getitem__(self, number: int) -> Channels:
        if number not in self._channels:
            self._channels[number] = Channels(connect_timeout_s=CONNECT_TIMEOUT_S)
        return self._channels[number]

    def start(self, work: Coroutine[object, object, Result]) -> Future[Result]:
        """It goes on beside what is asked next."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[object, object, Result]) -> Result:
        return self.start(work).result()


connections: Connections


def _begin() -> None:
    global connections
    connections = Connections()


def _call(number: int, address: str, request: Command) -> Command:
    return connections.wait(connections[number].call(address, request, TIMEOUT_MS))


def broker_in(folder: Path, **settings: str) -> Broker:
    """On loopback and a free port; it refuses no send because the disk is slow, and does not tell
    of long turns.

    :param settings: of broker.conf, beside these.
    """
    pairs = {
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
    }
    pairs |= {"storePathRootDir": str(folder), "brokerName": "broker-a"}
    pairs |= {"osPageCacheBusyTimeOutMills": "600000", "loopDelayWarningMs": "0"}
    return Broker(read_config(list((pairs | settings).items()), environment={})[0])


@asynccontextmanager
async def serving(make: Callable[[Path], AnyServed]) -> AsyncIterator[AnyServed]:
    """What is made of a new folder, started, and with the garbage collector of `roquet broker`;
    stopped at the end.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        served = make(Path(folder))
        await served.start()
        freeze_survivors()
        try:
            yield served
        finally:
            await served.stop()
