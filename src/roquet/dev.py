"""A name server and a broker in one process, for tests and laptops.

async with roquet.dev.Cluster() as cluster:
    async with roquet.Producer(cluster.name_server, "group") as producer:
        await producer.send("topic", b"body")
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.filter import FilterSettings
from roquet.broker.config.store import DELAY_LEVELS, StoreSettings
from roquet.common.extras import needed_by
from roquet.common.runtime import Runtime
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.server import NameServer

if TYPE_CHECKING:
    from roquet.broker.server import Broker

LOOPBACK: Final = "127.0.0.1"
COMMIT_LOG_FILE_SIZE: Final = 64 * 1024 * 1024
INDEX_SLOTS: Final = 50_000
INDEX_ENTRIES: Final = 200_000
ANY_SHARE: Final = 100
"""Percent. The broker never refuses messages or deletes files because the drive is nearly full."""


class Cluster:
    """A name server and a master in this process, on ports of the loopback interface.

    When `start` returns, the broker is registered, and clients can use the cluster.

    :param folder: the directory of the store; it is kept. None means a temporary directory, which
        `stop` deletes.
    :param port: the port of the name server; 0 means any free port. The broker always listens on
        free ports.
    :param failed: called when a sync of the broker's store failed. The broker serves no more, and
        `stop` raises the error.
    :param delay_levels: the waiting times of the delay levels 1, 2, ..., in the form of
        `messageDelayLevel`. The first retry of a failed message has level 3.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int = 0,
        delay_levels: str = DELAY_LEVELS,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._is_temporary = folder is None
        self._wanted_port = port
        self._delay_levels = delay_levels
        self._failed = failed
        self.port = port
        self.broker: Broker | None = None
        self._name_server: NameServer | None = None

    @property
    def name_server(self) -> str:
        """The address of the name server, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    async def start(self) -> int:
        """Start both and return the port of the name server.

        If the broker cannot start, the name server is stopped again.
        """
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix="roquet-"))
        try:
            await self._start(self._folder, Runtime())
        except BaseException:
            await self.stop()
            raise
        return self.port

    async def _start(self, folder: Path, runtime: Runtime) -> None:
        with needed_by("roquet.dev"):  # `import *` of a client's installation comes here, too
            from roquet.broker.server import Broker
        names = NamesrvConfig(
            listen_port=self._wanted_port,
            bind_address=LOOPBACK,
            kv_config_path=str(folder / "namesrv" / "kvConfig.json"),
            config_store_path=str(folder / "namesrv" / "namesrv.properties"),
        )
        name_server = NameServer(names, runtime)
        self.port = await name_server.start()
        self._name_server = name_server
        broker = Broker(self._broker_config(folder), runtime, end=self._failed)
        await broker.start()
        self.broker = broker
        await broker.parts.registrar.register()

    def _broker_config(self, folder: Path) -> BrokerConfig:
        """A configuration with small files: the broker starts quickly and needs little room."""
        store = StoreSettings(
            store_path_root_dir=str(folder / "store"),
            mapped_file_size_commit_log=COMMIT_LOG_FILE_SIZE,
            max_hash_slot_num=INDEX_SLOTS,
            max_index_num=INDEX_ENTRIES,
            disk_max_used_space_ratio=ANY_SHARE,
            disk_space_clean_forcibly_ratio=ANY_SHARE,
            disk_space_warning_level_ratio=ANY_SHARE,
            message_delay_level=self._delay_levels,
        )
        return replace(
            BrokerConfig(),
            namesrv_addr=self.name_server,
            broker_name="dev",
            broker_ip1=LOOPBACK,
            broker_ip2=LOOPBACK,
            bind_address=LOOPBACK,
            listen_port=0,
            store=store,
            filters=FilterSettings(enable_property_filter=True),
        )

    @property
    def ports(self) -> tuple[int, ...]:
        """The port of the name server; the broker's ports are found through it."""
        return (self.port,)

    @property
    def address(self) -> str:
        """The address of the name server, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    async def stop(self) -> None:
        """Stop both, the broker first.

        :raises NotWritten, DriveFailed: as `Broker.stop`; both are stopped nevertheless.
        """
        try:
            if self.broker is not None:
                await self.broker.stop()
        finally:
            await self._stop_name_server()

    async def _stop_name_server(self) -> None:
        if self._name_server is not None:
            await self._name_server.stop()
        if self._is_temporary and self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder)
            self._folder = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
