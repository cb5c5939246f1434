"""`roquet ha`: arguments and tables. The work is done by `roquet.admin.ha`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from roquet.cli.access import access, access_options, cluster_options
from roquet.cli.configuration import broker_config
from roquet.cli.output import end, json_option, show, table
from roquet.errors import RoquetError

if TYPE_CHECKING:
    from roquet.admin.cluster import AdminClient
    from roquet.admin.ha import Replica, Replicas

T = TypeVar("T")

_NOTHING: Final = "-"


@click.group()
def ha() -> None:
    """Show replication, promote a slave, let a former master rejoin."""


@ha.command(short_help="Show the lag of each slave, and its reason.")
@cluster_options
@click.option("-b", "--broker", "name", metavar="NAME", help="Only the brokers of this name.")
@json_option
def status(name_server: str, name: str | None, as_json: bool) -> None:
    """Show masters and slaves: where the log of each ends, its lag in bytes and seconds, and why.

    The first table is what each broker reports of itself. The second table is what each master
    reports of the slaves that are, or were, connected to it.
    """
    from roquet.admin.ha import all_replicas

    found = run(name_server, lambda cluster: all_replicas(cluster, name))
    if not found:
        end(f"no broker{'' if name is None else f' {name}'} is registered at the name servers")
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found]))
        return
    table(("BROKER", "ID", "ADDRESS", "LOG END", "LAG", "STATE", "REASON"), _replica_rows(found))
    seen = list(_slave_rows(found))
    if seen:
        click.echo()
        table(
            (
                "MASTER",
                "SLAVE",
                "ACKED",
                "LAG",
                "LAG S",
                "SILENT S",
                "BYTES/S",
                "IN SYNC",
                "STATE",
                "REASON",
            ),
            seen,
        )


@ha.command(short_help="Make a slave the master.")
@cluster_options
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--role",
    type=click.Choice(["ASYNC_MASTER", "SYNC_MASTER"]),
    default="ASYNC_MASTER",
    show_default=True,
    help="The role that the slave gets.",
)
@click.option(
    "--fenced",
    is_flag=True,
    help="Confirm that the old master is stopped, or cut off from its clients.",
)
@click.option(
    "--force", "forced", is_flag=True, help="Promote even if acknowledged messages are lost."
)
def promote(name_server: str, address: str, role: str, fenced: bool, forced: bool) -> None:
    """Make the slave at HOST:PORT the master of its broker name. It restarts with brokerId 0.

    The promotion is refused while the old master answers; if the old master cannot be reached,
    unless --fenced is given; and if the old master or another slave is known to have messages that
    this slave lacks, unless --force is given. If the slave was started with -c FILE, the new role
    is written to that file.
    """
    from roquet.admin.ha import promote as promote_slave

    run(
        name_server,
        lambda cluster: promote_slave(cluster, address, role, fenced=fenced, forced=forced),
    )
    show(f"{address} is now the master")


@ha.command(short_help="Prepare a former master to follow the new one.")
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The settings file of the former master, which must be stopped.",
)
@click.option(
    "-n",
    "--namesrv",
    "name_servers",
    metavar="HOST:PORT;...",
    help="The name servers; by default those of FILE.",
)
@click.option(
    "-m",
    "--master",
    metavar="HOST:PORT",
    help="The new master; by default the name servers are asked.",
)
@click.option(
    "--id",
    "broker_id",
    type=click.IntRange(1),
    help="The brokerId that it gets; by default the first free one.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Save the cut off records to this file, as lines of JSON.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@access_options
def rejoin(
    path: Path,
    name_servers: str | None,
    master: str | None,
    broker_id: int | None,
    output: Path | None,
    dry_run: bool,
) -> None:
    """Prepare a former master, whose settings are in FILE, to follow the new master as a slave.

    The records that only the former master has are saved and then cut off its log, queues and
    index. They are saved in a folder of its store that `roquet store dump` reads, or with -o as
    lines of JSON. FILE gets brokerRole=SLAVE and a brokerId. Start the broker afterwards.
    """
    from roquet.cli.ha.rejoin import rejoin as rejoin_master

    config = broker_config(path, name_servers)
    try:
        rejoin_master(config, master, broker_id, output, is_dry_run=dry_run)
    except (RoquetError, ValueError, OSError) as error:
        end(str(error))


def _replica_rows(found: list[Replicas]) -> Iterator[tuple[str, ...]]:
    for replicas in found:
        for replica in replicas.members:
            state, reason = _state(replica)
            lag = None if replica.broker_id == 0 else replicas.lag(replica)
            yield (
                replica.name,
                str(replica.broker_id),
                replica.address,
                _count(replica.end),
                _count(lag),
                state,
                reason,
            )


def _state(replica: Replica) -> tuple[str, str]:
    if replica.end is None:
        return "no answer", replica.reason
    if replica.status is None:
        return "unknown", "the broker does not support the request, as Apache's 4.x"
    follower = replica.status.follower
    state, reason = ("master", "") if follower is None else (follower.state, follower.reason)
    return state, "; ".join(filter(None, (reason, replica.status.trouble)))


def _slave_rows(found: list[Replicas]) -> Iterator[tuple[str, ...]]:
    for replicas in found:
        master = replicas.master
        for slave in () if master is None or master.status is None else master.status.slaves:
            yield (
                replicas.name,
                slave.address,
                _count(slave.acked),
                _count(slave.behind),
                f"{slave.behind_ms / 1000:.1f}",
                f"{slave.silent_ms / 1000:.1f}",
                _count(slave.bytes_per_s),
                "yes" if slave.is_in_sync else "no",
                slave.state or _NOTHING,
                slave.reason,
            )


def _count(number: int | None) -> str:
    return _NOTHING if number is None else f"{number:,}"


def run(name_server: str, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Return the result of `work` with a connected client; an error ends the command."""
    from roquet.admin.cluster import AdminClient

    async def inside() -> T:
        async with AdminClient(name_server, **access()) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(inside())
    except RoquetError as error:
        end(str(error))
