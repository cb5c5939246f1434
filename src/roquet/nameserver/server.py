"""Builds and runs a name server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from roquet.common.files import damaged_of, read_with_backup
from roquet.common.properties import changed
from roquet.common.runtime import Runtime
from roquet.common.saved_file import SavedFile
from roquet.errors import StoreError
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.handlers import NameServerHandlers
from roquet.nameserver.kv_config import KvConfig
from roquet.nameserver.routes import Routes
from roquet.protocol.bodies import tables as bodies
from roquet.protocol.json.dialect import dump_bytes
from roquet.transport.listening import listening
from roquet.transport.peers import Peers, connections_allowed
from roquet.transport.server import Server

log = logging.getLogger(__name__)

SCAN_S: Final = 10.0


class NameServer:
    """One name server. `port` is the port on which it listens, after `start`.

    It can be embedded in a program: it needs only the configuration and the runtime.

    :raises StoreError: the file of the key-value table cannot be read.
    """

    def __init__(self, config: NamesrvConfig, runtime: Runtime | None = None) -> None:
        self._config = config
        runtime = runtime or Runtime()
        kv_path = Path(config.kv_config_path).expanduser()
        kv = _load_kv(kv_path)
        self._changed: dict[str, str] = {}
        """Settings that clients changed since the start."""
        self._kv_file = SavedFile(kv_path, lambda: partial(dump_bytes, kv.to_json()), runtime)
        self._config_file = SavedFile(
            Path(config.config_store_path).expanduser(), self._config_text, runtime
        )
        routes = Routes()
        self._requests = NameServerHandlers(
            routes, kv, config, runtime.steady_ms, self._kv_file.save, self._save_config
        )
        self._watch: asyncio.Task[None] | None = None
        peers = self._peers = Peers(config.peers, connections_allowed(config.peers))
        self._server = Server(self._requests.handlers(), self._requests.connection_ended, peers)
        self._scan: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> int:
        """Start to listen, and return the port.

        :raises CannotListen: the port is in use, or the address is not one of this machine.
        """
        host, port = self._config.bind_address, self._config.listen_port
        with listening(host, port, "name server, listenPort"):
            self.port = await self._server.listen(host, port)
        self._scan = asyncio.create_task(self._scan_for_ever())
        self._watch = asyncio.create_task(self._peers.watch.run())
        return self.port

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    @property
    def address(self) -> str:
        return f"{self._config.bind_address}:{self.port}"

    def disconnect(self) -> None:
        """Drop all connections, with the answers not sent yet, and accept no more."""
        self._server.stop_accepting()
        for peer in list(self._peers.connections):
            peer.abort()

    async def stop(self) -> None:
        """Close the port and every connection."""
        for task in filter(None, (self._scan, self._watch)):
            task.cancel()
        await self._server.close()
        await self._kv_file.close()
        await self._config_file.close()

    def _save_config(self, pairs: Mapping[str, str]) -> Awaitable[None]:
        self._changed |= pairs
        return self._config_file.save()

    def _config_text(self) -> Callable[[], bytes]:
        """The operator's configuration file with the settings that clients changed.

        Comments, order and all other settings stay.
        """
        return partial(_merged, self._config_file.path, dict(self._changed))

    async def _scan_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SCAN_S)
            self._requests.expire()
            self._kv_file.retry()
            self._config_file.retry()


def _merged(path: Path, pairs: Mapping[str, str]) -> bytes:
    """The text of a properties file with some values changed.

    :raises OSError: the file cannot be read.
    :raises ValueError: the file is not UTF-8, or no properties file.
    """
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        before = b""
    return changed(before.decode(), pairs).encode()


def _load_kv(path: Path) -> KvConfig:
    """Read the table from its file or the backup; empty if there is neither.

    :raises StoreError: a file exists, but neither can be read.
    """
    table, problems = read_with_backup(path, lambda data: bodies.parse(data, KvConfig.from_json))
    texts = "; ".join(f"{candidate}: {error}" for candidate, error in problems)
    if table is None:
        if problems:
            raise StoreError(f"the key-value table cannot be read, repair or remove it: {texts}")
        return KvConfig()
    if problems:
        text = "file cannot be read, its backup is used: path=%s damaged_kept_as=%s error=%s"
        log.warning(text, path, damaged_of(path).name, texts)
    return table
