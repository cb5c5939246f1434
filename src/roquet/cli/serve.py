"""`roquet namesrv`, `roquet broker`, `roquet dev`.

Each reads a configuration and runs a server until a signal stops it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from roquet.cli.configuration import broker_config, configured
from roquet.cli.log_lines import OneLine
from roquet.cli.output import DRIVE_FAILED, FAILED, end
from roquet.common.descriptors import raise_limit
from roquet.common.memory import (
    COLLECT_ALL_PERIOD_S,
    collect_all,
    freeze_survivors,
    keep_freed_memory,
)
from roquet.common.properties import dump
from roquet.common.runtime import Runtime
from roquet.common.settings import read_settings, show_settings
from roquet.errors import ConfigError, DriveFailed, RoquetError

if TYPE_CHECKING:
    from roquet.dev import Cluster

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

_NO_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The errors with which `accept` fails for lack of file descriptors or memory."""


class AsyncServer(Protocol):
    """The interface of all servers; `port`, `ports` and `address` are valid after `start`."""

    @property
    def port(self) -> int: ...

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports that the server listens on."""
        ...

    @property
    def address(self) -> str:
        """The address that is advertised to clients, as `host:port`."""
        ...

    async def start(self) -> object: ...

    async def stop(self) -> None: ...


Make = Callable[[Callable[[], None]], AsyncServer]
"""Builds a server; the function it is given stops the server."""


_config_file = click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read settings from this file.",
)
_print_config = click.option(
    "-p",
    "--print-config",
    "print_only",
    is_flag=True,
    help="Print the effective settings and exit.",
)

_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_log_level = click.option(
    "--log-level",
    type=click.Choice(_LOG_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    envvar="ROQUET_LOG_LEVEL",
    show_envvar=True,
    help="Log events of this level or a higher one.",
)


@click.command(help="Run a name server: brokers register with it, clients get routes from it.")
@_config_file
@_print_config
@_log_level
def namesrv(path: Path | None, print_only: bool, log_level: str) -> None:
    from roquet.nameserver.config import NamesrvConfig
    from roquet.nameserver.server import NameServer

    config = configured(lambda pairs, source: read_settings(NamesrvConfig, pairs, source), path, [])
    if path is not None:  # settings that an operator changes by request are saved to this file
        config = replace(config, config_store_path=str(path))
    if print_only:
        return _print(config)
    return serve(
        "namesrv", config.bind_address, lambda stop: NameServer(config, Runtime()), log_level
    )


@click.command(help="Run a broker, as master or slave, by its settings.")
@_config_file
@click.option(
    "-n",
    "--namesrv",
    "namesrv_addr",
    metavar="HOST:PORT;...",
    help="The name servers to register with.",
)
@_print_config
@_log_level
def broker(path: Path | None, namesrv_addr: str | None, print_only: bool, log_level: str) -> None:
    from roquet.broker.process import BrokerProcess

    config = broker_config(path, namesrv_addr)
    if print_only:
        return _print(config)
    return serve(
        "broker",
        config.bind_address,
        lambda stop: BrokerProcess(config, Runtime(), stop),
        log_level,
    )


@click.command(help="Run a name server and brokers in one process, on loopback, to try things out.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9876,
    show_default=True,
    help="The name server's port; 0 for any free one.",
)
@click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep messages in this folder; by default they are deleted at the end.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 26),
    help="How many masters: broker-a, broker-b, ...; by default one with the name dev.",
)
@click.option(
    "--slaves",
    type=click.IntRange(0, 9),
    default=0,
    show_default=True,
    help="How many slaves each master has.",
)
@_log_level
def dev(port: int, folder: Path | None, brokers: int | None, slaves: int, log_level: str) -> None:
    from roquet.dev import DEFAULT_NAMES, LOOPBACK, Cluster

    def make(stop: Callable[[], None]) -> ClusterServer:
        loop = asyncio.get_running_loop()

        def failed() -> None:  # called from a thread of the cluster
            loop.call_soon_threadsafe(stop)

        return ClusterServer(
            Cluster(
                folder,
                port=port,
                brokers=brokers or DEFAULT_NAMES,
                slaves=slaves,
                failed=failed,
                loop_factory=_loop_factory(),
            )
        )

    return serve("dev", LOOPBACK, make, log_level)


class ClusterServer:
    """A cluster as a server: its programs run in threads of their own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def port(self) -> int:
        return self._cluster.port

    @property
    def ports(self) -> tuple[int, ...]:
        """The port of the name server; clients find those of the brokers through it."""
        return (self.port,)

    @property
    def address(self) -> str:
        return self._cluster.name_server

    async def start(self) -> None:
        await asyncio.to_thread(self._cluster.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self._cluster.stop)


def serve(name: str, host: str, make: Make, log_level: str = "info") -> None:
    """Run a server until SIGTERM, SIGINT or SIGHUP.

    A failure prints its reason and ends the process.

    :param name: the subcommand, for the line that says that the server is ready.
    :param host: the address that the server binds to.
    :param log_level: the lowest level of log events that are shown.
    """
    _log_to_standard_error(log_level)
    raise_limit()  # each connection and each file of the store needs a descriptor
    keep_freed_memory()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(name, host, make))
    except KeyboardInterrupt:  # on Windows, where the loop has no signal handlers
        return
    except ConfigError as error:
        end(str(error))
    except DriveFailed as error:
        end(str(error), DRIVE_FAILED)
    except RoquetError as error:
        end(str(error), FAILED)
    except OSError as error:
        what = error.strerror or str(error)
        where = "" if error.filename is None else f"{error.filename}: "
        end(f"cannot run here: {where}{what}", FAILED)


async def _run(name: str, host: str, make: Make) -> None:
    stopping = asyncio.Event()
    leave_refusals_to_the_server(asyncio.get_running_loop())
    _on_signals(stopping.set)
    server = make(stopping.set)
    await server.start()
    undo = freeze_survivors()
    collecting = asyncio.create_task(_collect_daily())
    _warn_of_open_ports(host, server.ports)
    own = f"{host}:{server.port}"
    click.echo(
        f"roquet {name} ready on {own}"
        + ("" if server.address == own else f", advertised as {server.address}")
    )
    try:
        await stopping.wait()
    finally:
        collecting.cancel()
        await server.stop()
        undo()


async def _collect_daily() -> None:
    """Run a full garbage collection every `COLLECT_ALL_PERIOD_S` seconds."""
    while True:
        await asyncio.sleep(COLLECT_ALL_PERIOD_S)
        collect_all()


def _warn_of_open_ports(host: str, ports: tuple[int, ...]) -> None:
    """Warn if the ports are reachable from other machines.

    Any client that reaches a port may delete topics, reset groups and promote slaves.
    """
    if host not in _LOOPBACK:
        text = "ports are open without authentication, restrict bindAddress or use a firewall: "
        text += "bindAddress=%s ports=%s"
        log.warning(text, host, ",".join(map(str, ports)))


def leave_refusals_to_the_server(loop: asyncio.AbstractEventLoop) -> None:
    """Keep asyncio from logging each failed `accept`; the server logs the failure itself, once.

    Without a free file descriptor asyncio logs thousands of lines. uvloop logs none.
    """
    loop.set_exception_handler(_log_others)


def _log_others(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not (
        isinstance(error, OSError)
        and error.errno in _NO_RESOURCES
        and "accept" in context["message"]
    ):
        loop.default_exception_handler(context)


def _log_to_standard_error(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the first SIGTERM, SIGINT or SIGHUP; a second one has its default effect.

    SIGHUP comes when the terminal is closed. `nohup` has it ignored, and it stays so.
    """
    loop = asyncio.get_running_loop()

    def first(number: int) -> None:
        loop.remove_signal_handler(number)
        stop()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        try:
            loop.add_signal_handler(number, first, number)
        except NotImplementedError:
            return


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _print(config: Any) -> None:
    click.echo(dump(show_settings(config)), nl=False)
