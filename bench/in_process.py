"""A broker in this process, for benches that look at its loop or its memory."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from roquet.broker.config.broker import read_config
from roquet.broker.server import Broker
from roquet.common.garbage import look_at_each_once


class Served(Protocol):
    """A broker with what a bench needs beside it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


AnyServed = TypeVar("AnyServed", bound=Served)


def broker_in(folder: Path, **settings: str) -> Broker:
    """On loopback and a free port; it refuses no send because the disk is slow, and does not tell of long turns.

    :param settings: of broker.conf, beside these.
    """
    pairs = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1", "listenPort": "0"}
    pairs |= {"storePathRootDir": str(folder), "brokerName": "broker-a"}
    pairs |= {"osPageCacheBusyTimeOutMills": "600000", "loopDelayWarningMs": "0"}
    return Broker(read_config(list((pairs | settings).items()), environment={})[0])


@asynccontextmanager
async def serving(make: Callable[[Path], AnyServed]) -> AsyncIterator[AnyServed]:
    """What is made of a new folder, started, and with the garbage collector of `roquet broker`; stopped at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        served = make(Path(folder))
        await served.start()
        look_at_each_once()
        try:
            yield served
        finally:
            await served.stop()
