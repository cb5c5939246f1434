"""`roquet ha rejoin`: the steps, and their output."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from roquet.admin.cluster import Cluster
from roquet.broker.config.broker import MASTER_ID, BrokerConfig, save_role
from roquet.broker.config.store import BrokerRole
from roquet.broker.ha.rejoin import Divergence, RejoinStore
from roquet.cli.access import access
from roquet.cli.output import json_line, show
from roquet.common.runtime import Runtime
from roquet.errors import ConfigError, StoreError
from roquet.storetool.dump import as_json


class Rejoin:
    """Prepares a former master to follow the new one.

    :param master: the new master's address; None to ask the name servers.
    :param broker_id: the broker id that the former master gets; None for the first free one.
    :param output: the file for the records that are cut off; None for a folder in the store.
    """

    def __init__(
        self, config: BrokerConfig, master: str | None, broker_id: int | None, output: Path | None
    ) -> None:
        self._config = config
        self._master = master
        self._broker_id = broker_id
        self._output = output
        self._store: RejoinStore | None = None
        self._divergence: Divergence | None = None

    def look(self) -> None:
        """Find the new master and the offset at which the two logs diverge, and print both.

        :raises StoreError: the store is in use, or cannot be opened.
        """
        asyncio.run(self._ask_name_servers())
        assert self._master is not None
        self._store = RejoinStore(self._config, Runtime())
        self._divergence = found = asyncio.run(self._store.find_divergence(self._master))
        count = sum(1 for _ in self._store.records(found))
        show(f"the log equals that of the master at {self._master} up to offset {found.at}")
        if found.size:
            show(f"{count} records, {found.size} bytes, are only in this log")

    async def _ask_name_servers(self) -> None:
        """Find the master's address and a free broker id, unless they are given."""
        own = self._config
        if self._broker_id is None and own.is_slave:
            self._broker_id = own.broker_id
        if self._master is not None and self._broker_id is not None:
            return
        if not own.name_servers:
            raise ConfigError("no name server is configured: give --namesrv, or --master and --id")
        async with Cluster(own.namesrv_addr, **access()) as cluster:
            brokers = await cluster.brokers()
        known = brokers[own.broker_name].addresses if own.broker_name in brokers else {}
        self._master = self._master or known.get(MASTER_ID)
        if self._master in (None, own.address):
            raise ConfigError(
                f"no other master of {own.broker_name} is registered at the name servers: "
                "promote a slave first"
            )
        if self._broker_id is None:
            self._broker_id = next(
                number for number in range(1, len(known) + 2) if number not in known
            )

    def do(self) -> None:
        """Save the records that only this log has, cut them off, and change the settings."""
        assert self._store is not None
        assert self._divergence is not None
        assert self._broker_id is not None
        if self._divergence.size:
            self._save(self._store, self._divergence)
            self._store.truncate(self._divergence)
        self.close()
        role = replace(self._config.replication, broker_role=BrokerRole.SLAVE)
        config = replace(self._config, broker_id=self._broker_id, replication=role)
        save_role(config)
        path = config.broker_config_path
        show(f"{path} now has brokerRole=SLAVE, brokerId={self._broker_id}: start the broker")

    def _save(self, store: RejoinStore, divergence: Divergence) -> None:
        """Save the records durably, before they are cut off.

        :raises OSError: the output file cannot be written, or exists already.
        :raises StoreError: no output file is given, and the store's drive has no room.
        """
        path = self._output
        if path is None:
            folder = store.save(divergence)
            if folder is None:
                raise StoreError(
                    "the records could not be saved: make room, "
                    "or give a file on another drive with -o"
                )
            show(f"the records are saved in {folder}; to read them: roquet store dump {folder}")
            return
        with path.open("x", encoding="utf-8") as file:
            for data in store.records(divergence):
                file.write(json_line(as_json(data)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        show(f"the records are saved in {path}")

    def close(self) -> None:
        """Close the store, as in a clean stop of the broker."""
        if self._store is not None:
            self._store.close()
            self._store = None
