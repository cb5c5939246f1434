"""`roquet ha rejoin`: the steps, and what it says of them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from roquet.admin.cluster import Cluster
from roquet.broker.config.broker import MASTER_ID, BrokerConfig
from roquet.broker.config.file import save_role
from roquet.broker.config.store import BrokerRole
from roquet.broker.ha.rejoin import Divergence, RejoinStore
from roquet.cli.access import access
from roquet.cli.output import json_line, show
from roquet.common.runtime import Runtime
from roquet.errors import ConfigError, StoreError
from roquet.storetool.dump import as_json


class Rejoin:
    """One broker's way back.

    :raises StoreError: its store is in use, or cannot be opened.
    """

    def __init__(
        self, config: BrokerConfig, master: str | None, broker_id: int | None, output: Path | None
    ) -> None:
        self._config = config
        self._master = master
        self._broker_id = broker_id
        self._output = output
        self._store: RejoinStore | None = None
        self._parting: Divergence | None = None

    def look(self) -> None:
        """Find the master, and where the logs part."""
        asyncio.run(self._ask_around())
        assert self._master is not None
        self._store = RejoinStore(self._config, Runtime())
        self._parting = found = asyncio.run(self._store.parting(self._master))
        count = sum(1 for _ in self._store.records(found))
        show(f"the log is that of the master at {self._master} up to {found.at}")
        if found.size:
            show(f"{count} records, {found.size} bytes, are only here")

    async def _ask_around(self) -> None:
        """The master's address and a free id, where they are not given."""
        own = self._config
        if self._broker_id is None and own.is_slave:
            self._broker_id = own.broker_id
        if self._master is not None and self._broker_id is not None:
            return
        if not own.name_servers:
            raise ConfigError("no name server is known: give --namesrv, or --master and --id")
        async with Cluster(own.namesrv_addr, access()) as cluster:
            brokers = await cluster.brokers()
        known = brokers[own.broker_name].addresses if own.broker_name in brokers else {}
        self._master = self._master or known.get(MASTER_ID)
        if self._master in (None, own.address):
            raise ConfigError(
                f"the name servers know no other master of {own.broker_name}: promote a slave first"
            )
        if self._broker_id is None:
            self._broker_id = next(
                number for number in range(1, len(known) + 2) if number not in known
            )

    def do(self) -> None:
        """Save, cut, and change the settings."""
        assert self._store is not None
        assert self._parting is not None
        assert self._broker_id is not None
        if self._parting.size:
            self._save(self._store, self._parting)
            self._store.cut(self._parting)
        self.close()
        role = replace(self._config.replication, broker_role=BrokerRole.SLAVE)
        config = replace(self._config, broker_id=self._broker_id, replication=role)
        save_role(config)
        show(
            f"{config.broker_config_path} says brokerRole=SLAVE, brokerId={self._broker_id}: start the broker"
        )

    def _save(self, store: RejoinStore, parting: Divergence) -> None:
        """On disk before anything is cut.

        :raises OSError: the file cannot be written, or is there already.
        :raises StoreError: no file is named, and the store's drive has no room.
        """
        path = self._output
        if path is None:
            folder = store.save(parting)
            if folder is None:
                raise StoreError(
                    "they could not be saved: make room, or name a file on another drive by -o"
                )
            show(f"they are saved in {folder}: look at them with roquet store dump {folder}")
            return
        with path.open("x", encoding="utf-8") as file:
            for data in store.records(parting):
                file.write(json_line(as_json(data)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        show(f"they are saved in {path}")

    def close(self) -> None:
        """Leave the store as after a clean stop."""
        if self._store is not None:
            self._store.close()
            self._store = None
