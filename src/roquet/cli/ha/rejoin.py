"""`roquet ha rejoin`: the steps, and their output."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from roquet.admin.cluster import AdminClient
from roquet.broker.config.broker import BrokerConfig, save_role
from roquet.broker.config.store import BrokerRole
from roquet.broker.ha.rejoin import Divergence, RejoinStore
from roquet.cli.access import access
from roquet.cli.output import json_line, show
from roquet.common.runtime import Runtime
from roquet.errors import ConfigError, StoreError
from roquet.storetool.dump import as_json


def rejoin(
    config: BrokerConfig,
    master: str | None,
    broker_id: int | None,
    output: Path | None,
    *,
    is_dry_run: bool,
) -> None:
    """Prepare a former master to follow the new one; print each step.

    The records that only this log has are saved, then cut off; the settings are changed last.

    :param config: the former master's.
    :param master: the new master's address; None to ask the name servers.
    :param broker_id: the broker id that the former master gets; None for the first free one.
    :param output: the file for the records that are cut off; None for a folder in the store.
    :param is_dry_run: only find and print where the two logs diverge.
    :raises StoreError: the store is in use, cannot be opened, or has no room for the records.
    :raises OSError: the output file cannot be written, or exists already.
    """
    master, broker_id = asyncio.run(_master_and_id(config, master, broker_id))
    # Closed as in a clean stop of the broker, before the settings make it a slave.
    with closing(RejoinStore(config, Runtime())) as store:
        divergence = asyncio.run(store.find_divergence(master))
        count = sum(1 for _ in store.records(divergence))
        show(f"the log equals that of the master at {master} up to offset {divergence.at}")
        if divergence.size:
            show(f"{count} records, {divergence.size} bytes, are only in this log")
        if is_dry_run:
            return
        if divergence.size:
            _save(store, divergence, output)
            store.truncate(divergence)
    role = replace(config.replication, broker_role=BrokerRole.SLAVE)
    save_role(replace(config, broker_id=broker_id, replication=role))
    path = config.broker_config_path
    show(f"{path} now has brokerRole=SLAVE, brokerId={broker_id}: start the broker")


async def _master_and_id(
    config: BrokerConfig, master: str | None, broker_id: int | None
) -> tuple[str, int]:
    """The master's address and a free broker id: as given, or from the name servers."""
    if broker_id is None and config.is_slave:
        broker_id = config.broker_id
    if master is not None and broker_id is not None:
        return master, broker_id
    if not config.name_servers:
        raise ConfigError("no name server is configured: give --namesrv, or --master and --id")
    async with AdminClient(config.namesrv_addr, **access()) as cluster:
        brokers = await cluster.brokers()
    listed = brokers.get(config.broker_name)
    known = {} if listed is None else listed.addresses
    if listed is not None:
        master = master or listed.master
    if master is None or master == config.address:
        raise ConfigError(
            f"no other master of {config.broker_name} is registered at the name servers: "
            "promote a slave first"
        )
    if broker_id is None:
        broker_id = next(number for number in range(1, len(known) + 2) if number not in known)
    return master, broker_id


def _save(store: RejoinStore, divergence: Divergence, path: Path | None) -> None:
    """Save the records durably, before they are cut off."""
    if path is None:
        folder = store.save(divergence)
        if folder is None:
            raise StoreError(
                "the records could not be saved: make room, or give a file on another drive with -o"
            )
        show(f"the records are saved in {folder}; to read them: roquet store dump {folder}")
        return
    with path.open("x", encoding="utf-8") as file:
        for data in store.records(divergence):
            file.write(json_line(as_json(data)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    show(f"the records are saved in {path}")
