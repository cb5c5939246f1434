"""`roquet ha`: arguments and tables around `roquet.admin.ha`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from roquet.cli.access import access, access_options
from roquet.cli.configuration import broker_config
from roquet.cli.output import end, show, table
from roquet.errors import RoquetError

if TYPE_CHECKING:
    from roquet.admin.cluster import Cluster
    from roquet.admin.ha import Member, Replicas

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_NOTHING: Final = "-"
_one_of_them = click.option(
    "-n",
    "--namesrv",
    "name_servers",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT;...",
    help="The name servers. [env: NAMESRV_ADDR]",
)


def _name_servers(command: F) -> F:
    """Which cluster, and how it is spoken to."""
    return _one_of_them(access_options(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def ha() -> None:
    """See how slaves follow their masters, let one take its master's place, and the former master follow it."""


@ha.command(short_help="How far each slave is, and why.")
@_name_servers
@click.option("-b", "--broker", "name", metavar="NAME", help="Only the brokers of this name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name_servers: str, name: str | None, as_json: bool) -> None:
    """Show masters and slaves: what each has, how far it is behind in bytes and seconds, and why it is.

    The second table is how the master sees the slaves that are, or were, connected to it.
    """
    from roquet.admin.ha import all_replicas

    found = run(name_servers, lambda cluster: all_replicas(cluster, name))
    if not found:
        end(f"the name servers know no broker{'' if name is None else f' {name}'}")
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found]))
        return
    table(
        ("BROKER", "ID", "ADDRESS", "LOG ENDS AT", "BEHIND", "STATE", "REASON"), _member_rows(found)
    )
    seen = list(_slave_rows(found))
    if seen:
        click.echo()
        table(
            (
                "MASTER",
                "SLAVE",
                "HAS",
                "BEHIND",
                "SECONDS",
                "HEARD S AGO",
                "BYTES/S",
                "IN SYNC",
                "STATE",
                "REASON",
            ),
            seen,
        )


@ha.command(short_help="Let a slave be the master.")
@_name_servers
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--role",
    type=click.Choice(["ASYNC_MASTER", "SYNC_MASTER"]),
    default="ASYNC_MASTER",
    show_default=True,
    help="What it becomes.",
)
@click.option(
    "--fenced",
    is_flag=True,
    help="The old master is stopped, or cut off from its clients, for certain.",
)
@click.option(
    "--force", "forced", is_flag=True, help="Even if acknowledged messages are lost by it."
)
def promote(name_servers: str, address: str, role: str, fenced: bool, forced: bool) -> None:
    """Let the slave at HOST:PORT be the master of its name: it starts anew with brokerId 0 on the log it has.

    It is refused while the old master answers; while that cannot be reached and nobody says --fenced; and while this
    slave lacks what the old master or another slave is known to have had, unless --force is given. A slave that was
    started with a file of settings has its new role written there.
    """
    from roquet.admin.ha import promote as promote_slave

    run(
        name_servers,
        lambda cluster: promote_slave(cluster, address, role, fenced=fenced, forced=forced),
    )
    show(f"{address} is the master now")


@ha.command(short_help="Make a former master fit to follow the new one.")
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The settings of the former master, which does not run.",
)
@click.option(
    "-n",
    "--namesrv",
    "name_servers",
    metavar="HOST:PORT;...",
    help="The name servers, if not in FILE.",
)
@click.option(
    "-m",
    "--master",
    metavar="HOST:PORT",
    help="The new master, if the name servers shall not be asked.",
)
@click.option(
    "--id",
    "broker_id",
    type=click.IntRange(1),
    help="The broker id it gets; the first free one without it.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Save the records there, as JSON.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@access_options
def rejoin(
    path: Path,
    name_servers: str | None,
    master: str | None,
    broker_id: int | None,
    output: Path | None,
    dry_run: bool,
) -> None:
    """Let a former master, whose settings are in FILE, follow the broker that took its place.

    Where the two logs part, what only the former master has is saved in a folder of its store that `roquet store dump`
    reads (with -o as lines of JSON, as that prints them), and cut off its log, queues and index; FILE gets
    brokerRole=SLAVE and an id. Start the broker after that.
    """
    from roquet.cli.ha.rejoin import Rejoin

    config = broker_config(path, name_servers)
    work = Rejoin(config, master, broker_id, output)
    try:
        work.look()
        if not dry_run:
            work.do()
    except (RoquetError, ValueError, OSError) as error:
        end(str(error))
    finally:
        work.close()


def _member_rows(found: list[Replicas]) -> Iterator[tuple[str, ...]]:
    for replicas in found:
        for member in replicas.members:
            state, reason = _state(member)
            behind = None if member.broker_id == 0 else replicas.behind(member)
            yield (
                member.name,
                str(member.broker_id),
                member.address,
                _count(member.end),
                _count(behind),
                state,
                reason,
            )


def _state(member: Member) -> tuple[str, str]:
    if member.end is None:
        return "no answer", member.trouble
    if member.status is None:
        return "not told", "it knows no such request, as Apache's 4.x"
    follower = member.status.follower
    state, reason = ("master", "") if follower is None else (follower.state, follower.reason)
    return state, "; ".join(filter(None, (reason, member.status.trouble)))


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


def run(name_servers: str, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `work` finds in the cluster; ends the command with one line where it cannot be had."""
    from roquet.admin.cluster import Cluster

    async def inside() -> T:
        async with Cluster(name_servers, access()) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(inside())
    except RoquetError as error:
        end(str(error))
