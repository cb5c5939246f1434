"""`roquet namesrv`, `roquet broker`, `roquet dev`: read a configuration, run a server until a signal stops it."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from roquet.cli.configuration import broker_config, configured
from roquet.cli.log_lines import OneLine
from roquet.cli.output import DRIVE_FAILED, FAILED, end
from roquet.common.garbage import WHOLE_S, look_at_all, look_at_each_once
from roquet.common.memory import keep_freed_memory
from roquet.common.properties import dump
from roquet.common.runtime import Runtime
from roquet.common.settings import read_settings, show_settings
from roquet.errors import ConfigError, DriveFailed, RoquetError

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_EVERYWHERE: Final = ("", "0.0.0.0", "::")

_NO_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class AsyncServer(Protocol):
    """What all servers have in common; `port`, `ports` and `address` count once `start` has returned."""

    port: int

    @property
    def ports(self) -> tuple[int, ...]:
        """All that it listens on."""
        ...

    @property
    def address(self) -> str:
        """Where clients are told to find it."""
        ...

    async def start(self) -> object: ...

    async def stop(self) -> None: ...


Make = Callable[[Callable[[], None]], AsyncServer]
"""Gives a server, which may ask for its own end."""


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
    help="Print the settings that would count, and end.",
)


@click.command(help="Run a name server: where brokers register, and clients find them.")
@_config_file
@_print_config
def namesrv(path: Path | None, print_only: bool) -> None:
    from roquet.nameserver.config import NamesrvConfig
    from roquet.nameserver.server import NameServer

    config = configured(lambda pairs, source: read_settings(NamesrvConfig, pairs, source), path, [])
    if path is not None:  # a setting changed from afar is kept where this one came from
        config = replace(config, config_store_path=str(path))
    if print_only:
        return _print(config)
    return serve("namesrv", config.bind_address, lambda stop: NameServer(config, Runtime()))


@click.command(help="Run a broker: master or slave, as its settings say.")
@_config_file
@click.option(
    "-n",
    "--namesrv",
    "namesrv_addr",
    metavar="HOST:PORT;...",
    help="The name servers to register with.",
)
@_print_config
def broker(path: Path | None, namesrv_addr: str | None, print_only: bool) -> None:
    from roquet.broker.process import BrokerProcess

    config = broker_config(path, namesrv_addr)
    if print_only:
        return _print(config)
    return serve("broker", config.bind_address, lambda stop: BrokerProcess(config, Runtime(), stop))


@click.command(
    help="Run a name server and a broker in one process, on loopback: to try things out."
)
@click.option("--port", default=9876, show_default=True, help="The name server's port.")
@click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep the messages here.",
)
def dev(port: int, folder: Path | None) -> None:
    from roquet.dev import LOOPBACK, Cluster

    return serve("dev", LOOPBACK, lambda stop: Cluster(folder, port=port, failed=stop))


def serve(name: str, host: str, make: Make) -> None:
    """Run what `make` gives until SIGTERM or SIGINT; a failure ends the process with a line that says why."""
    _log_to_standard_error()
    _allow_many_files()
    keep_freed_memory()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(name, host, make))
    except KeyboardInterrupt:  # Windows: there the loop takes no signal handlers
        return
    except ConfigError as error:
        end(str(error))
    except DriveFailed as error:
        end(str(error), DRIVE_FAILED)
    except RoquetError as error:
        end(str(error), FAILED)
    except OSError as error:
        end(f"cannot run here: {error}", FAILED)


async def _run(name: str, host: str, make: Make) -> None:
    stopping = asyncio.Event()
    leave_refusals_to_the_server(asyncio.get_running_loop())
    _on_signals(stopping.set)
    server = make(stopping.set)
    await server.start()
    undo = look_at_each_once()
    looking = asyncio.create_task(_look_at_all())
    _say_who_may_come(host, server.ports)
    own = f"{host}:{server.port}"
    click.echo(
        f"roquet {name} ready on {own}"
        + ("" if server.address == own else f", told to clients as {server.address}")
    )
    try:
        await stopping.wait()
    finally:
        looking.cancel()
        await server.stop()
        undo()


async def _look_at_all() -> None:
    """For ever, each day."""
    while True:
        await asyncio.sleep(WHOLE_S)
        look_at_all()


def _say_who_may_come(host: str, ports: tuple[int, ...]) -> None:
    """Anybody who reaches a port may delete topics, reset groups and promote slaves."""
    if host not in _LOOPBACK:
        who = (
            "every network of this machine"
            if host in _EVERYWHERE
            else "whoever reaches that address"
        )
        text = "ports are open to %s, without authentication: bindAddress=%s ports=%s; restrict them, or use a firewall"
        log.warning(text, who, host, ",".join(map(str, ports)))


def leave_refusals_to_the_server(loop: asyncio.AbstractEventLoop) -> None:
    """asyncio tells of each attempt to accept a connection without a file descriptor, thousands of times, uvloop
    of none. The server itself tells of it once.
    """
    loop.set_exception_handler(_complain)


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not (
        isinstance(error, OSError)
        and error.errno in _NO_RESOURCES
        and "accept" in context["message"]
    ):
        loop.default_exception_handler(context)


def _log_to_standard_error() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _allow_many_files() -> None:
    """Each connection and each file of the store counts, and the limit that most systems begin with is 1,024."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS says "unlimited" and takes less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _on_signals(stop: Callable[[], None]) -> None:
    """The first signal asks to stop, a second one does what it does by default."""
    loop = asyncio.get_running_loop()

    def first(number: int) -> None:
        loop.remove_signal_handler(number)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
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
