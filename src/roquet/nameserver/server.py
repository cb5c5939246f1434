"""Builds a name server from its configuration and runs it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from roquet.errors import ConfigError
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.handlers import Requests
from roquet.nameserver.kv_config import KvConfig
from roquet.nameserver.routes import Routes
from roquet.protocol import bodies
from roquet.protocol.json_dialect import dump_bytes
from roquet.runtime import Runtime
from roquet.transport.peers import Peers, connections_allowed
from roquet.transport.server import Server

SCAN_S: Final = 10.0


class NameServer:
    """One name server; `port` is the one it listens on, once it is started.

    It may be embedded: everything it needs is in the configuration and the runtime.

    :raises ConfigError: the key-value file holds something else.
    """

    def __init__(self, config: NamesrvConfig, runtime: Runtime | None = None) -> None:
        self._config = config
        self._requests = _requests(config, runtime or Runtime())
        peers = Peers(config.peers, connections_allowed(config.peers))
        self._server = Server(self._requests.handlers(), self._requests.connection_ended, peers)
        self._scan: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> int:
        """Listen; gives the port.

        :raises OSError: the port is taken, or the address is not one of this machine.
        """
        self.port = await self._server.listen(self._config.bind_address, self._config.listen_port)
        self._scan = asyncio.create_task(_expire_for_ever(self._requests))
        return self.port

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._scan is not None:
            self._scan.cancel()
        await self._server.close()


def _requests(config: NamesrvConfig, runtime: Runtime) -> Requests:
    """The files are small and change by a tool's hand only, so they are written before the answer, in place."""
    kv_path = Path(config.kv_config_path).expanduser()
    config_path = Path(config.config_store_path).expanduser()
    return Requests(
        Routes(),
        _load_kv(kv_path),
        config,
        runtime.steady_ms,
        lambda kv: _write(kv_path, dump_bytes(kv.to_json())),
        lambda text: _write(config_path, text.encode()),
    )


async def _expire_for_ever(requests: Requests) -> None:
    while True:
        await asyncio.sleep(SCAN_S)
        requests.expire()


def _load_kv(path: Path) -> KvConfig:
    """The table in the file or, where a stop left that unfinished, in its backup; empty where there is neither."""
    problems: list[str] = []
    for candidate in (path, _backup_of(path)):
        try:
            return bodies.parse(candidate.read_bytes(), KvConfig.from_json)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problems.append(f"{candidate}: {error}")
    if problems:
        raise ConfigError(f"the key-value table cannot be read, mend or remove it: {'; '.join(problems)}")
    return KvConfig()


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole; what it held before stays as its backup."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_bytes(data)
    if path.exists():
        shutil.copyfile(path, _backup_of(path))
    unfinished.replace(path)


def _backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
