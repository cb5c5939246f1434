"""A broker and a name server on simulated hosts: started, ended in every way, started again on what
their drive has.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import Context
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole, FlushDisk, StoreSettings
from roquet.broker.process import BrokerProcess
from roquet.broker.server import Broker
from roquet.errors import DriveFailed, NotWritten
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.server import NameServer
from roquet.replication.slave import Phase
from roquet.storage.store import Store
from roquet.transport.limits import PeerLimits
from tests.simulation.simulation import Host
from tests.simulation.threads import Process

STORE: Final = "/store"
BROKER_NAME: Final = "broker-a"
BROKER_PORT: Final = 10911
NAME_SERVER_PORT: Final = 9876
QUEUES: Final = 3
STOP_S_MAX: Final = 120.0
RESTART_S: Final = 5.0


class BrokerNode:
    """One broker process after the other on one host.

    Invariant: `broker` is the one that serves now, None while none does; `life` counts the starts.
    """

    def __init__(self, name: str, host: Host, config: BrokerConfig) -> None:
        self.name = name
        self.host = host
        self.life = 0
        self._config = config
        self._process: BrokerProcess | None = None

    @property
    def broker(self) -> Broker | None:
        process = self._process
        return None if process is None or self.host.process is None else process.broker

    def limit_peers(self, limits: PeerLimits) -> None:
        """Before it starts for the first time."""
        assert self._process is None
        self._config = replace(self._config, peers=limits)

    @property
    def last_store(self) -> Store | None:
        """That of its broker, or of the one whose process ended, in the middle of whatever that was
        doing.
        """
        broker = None if self._process is None else self._process.broker
        return None if broker is None else broker.store

    @property
    def log_end(self) -> int | None:
        """How far its log reaches, or did then."""
        return None if self.last_store is None else self.last_store.log.end

    @property
    def config(self) -> BrokerConfig:
        """What the next process is started with, as from its file: a promotion changes it."""
        return self._config if self._process is None else self._process.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config, self._process = config, None

    @property
    def address(self) -> str:
        return self.config.address

    @property
    def is_slave(self) -> bool:
        return self.config.is_slave

    def start(self) -> None:
        """Begin to recover and serve; `broker` is there as soon as it does."""
        self.config = self.config
        self.life += 1
        self.host.start(self._serve)

    async def _serve(self) -> None:
        failed = asyncio.Event()
        process = self._process = BrokerProcess(
            self._config, self.host.runtime(), failed.set, self.host.disk
        )
        try:
            await process.start()
            await failed.wait()
            await process.stop()
        except (
            OSError,
            NotWritten,
        ):  # it could not even find out what it has, or not write what it had
            if self.host.drive.is_well:
                raise
        except DriveFailed:
            pass
        asyncio.get_running_loop().call_soon(self._end, self.host.process)

    def _end(self, process: Process | None) -> None:
        """The broker has ended by itself; whoever looks after it starts it again."""
        if process is self.host.process is not None:
            self.host.kill()
            asyncio.get_running_loop().call_later(RESTART_S, self._start_again, context=Context())

    def _start_again(self) -> None:
        if not self.host.is_running:
            self.start()

    def stop(self) -> None:
        """As an operator does it: the broker finishes its work, then its process ends."""
        broker = self.broker
        assert broker is not None, f"{self.name} does not serve"
        self.host.call(broker.stop, STOP_S_MAX)
        self.host.kill()

    def wipe(self) -> None:
        """End it and delete all its files, so that it starts from nothing."""
        if self.host.is_running:
            self.host.kill()
        disk = self.host.drive.mount()
        for path in list(self.host.drive.names.files):
            disk.delete(path)
        self.host.drive.unmount()

    @property
    def phase(self) -> Phase | None:
        """Where a slave stands with its master."""
        broker = self.broker
        follower = None if broker is None else broker.parts.follower
        return None if follower is None else follower.client.phase

    @property
    def is_changing(self) -> bool:
        """It has served in this life, and is going to serve in another role."""
        return self.host.is_running and self._process is not None and self._process.is_changing

    def does_not_fit(self, master: Broker) -> bool:
        """A slave that cannot follow its master, since that has lost what the slave has, or has
        deleted what the slave lacks: an operator has to help.
        """
        if self.broker is None:
            return False
        end = self.broker.store.log.end
        is_left_behind = 0 < end <= master.store.log.start and self._is_told_to_begin_anew(master)
        return self.phase is Phase.STOPPED or end > master.store.log.end or is_left_behind

    def _is_told_to_begin_anew(self, master: Broker) -> bool:
        server = master.parts.ha_server
        last = server._disconnected.get(self.host.address) if server is not None else None
        return last is not None and "wipe its store" in last[0].reason

    def follows(self, master: Broker) -> bool:
        """A slave that has all its master has, and is being told more."""
        broker = self.broker
        if broker is None or broker.parts.follower is None:
            return False
        client = broker.parts.follower.client
        if client.master != master.config.ha_address:
            return False
        return client.phase is Phase.FOLLOWING and broker.store.log.end == master.store.log.end


class NameServerNode:
    """One name server process after the other on one host; none finds what another one has
    written.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.is_serving = False
        self._settings = Path()

    def settings(self) -> str:
        """What its file says, which it reads when it is started again."""
        return self._settings.read_text() if self._settings.is_file() else ""

    def start(self) -> None:
        self.is_serving = False
        self.host.start(self._serve)

    async def _serve(self) -> None:
        with TemporaryDirectory() as folder:  # a name server's files are those of this machine
            config = NamesrvConfig(
                listen_port=NAME_SERVER_PORT,
                kv_config_path=str(Path(folder) / "kvConfig.json"),
                config_store_path=str(Path(folder) / "namesrv.properties"),
            )
            self._settings = Path(config.config_store_path)
            await NameServer(config, self.host.runtime()).start()
            self.is_serving = True
            await asyncio.Event().wait()


def drawn_config(chance: random.Random, name_server: str) -> BrokerConfig:
    """Small files, so that they roll, and everything else that a seed may differ in."""
    draw = chance.choice
    config = BrokerConfig()
    return replace(
        config,
        namesrv_addr=name_server,
        broker_name=BROKER_NAME,
        default_topic_queue_nums=QUEUES,
        listen_port=BROKER_PORT,
        register_name_server_period=draw((10_000, 30_000)),
        store=StoreSettings(
            store_path_root_dir=STORE,
            mapped_file_size_commit_log=draw((8_192, 16_384, 65_536)),
            mapped_file_size_consume_queue=20 * draw((10, 50, 1_000)),
            max_hash_slot_num=draw((10, 100)),
            max_index_num=draw((50, 1_000)),
            flush_consume_queue_thorough_interval=draw((2_000, 10_000, 60_000)),
            flush_commit_log_thorough_interval=draw((1_000, 10_000)),
        ),
        replication=replace(config.replication, ha_transfer_batch_size=draw((700, 4_096, 32_768))),
    )


def with_role(
    config: BrokerConfig, role: BrokerRole, broker_id: int, address: str, flush: FlushDisk
) -> BrokerConfig:
    """The same for one broker of several that share a name."""
    return replace(
        config,
        broker_id=broker_id,
        broker_ip1=address,
        broker_ip2=address,
        store=replace(config.store, flush_disk_type=flush),
        replication=replace(config.replication, broker_role=role),
    )
