"""The `roquet` command: a table of subcommands, each of which is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from roquet.cli.output import INTERRUPTED, end
from roquet.common.extras import MissingExtraError, needed_by


class Entry(NamedTuple):
    """A subcommand: module and function, and the line that `--help` shows without an import."""

    module: str
    function: str
    help: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "namesrv": Entry("roquet.cli.serve", "namesrv", "Run a name server."),
    "broker": Entry("roquet.cli.serve", "broker", "Run a broker."),
    "store": Entry(
        "roquet.cli.store.command", "store", "Check, list, print and rebuild the files of a store."
    ),
    "ha": Entry(
        "roquet.cli.ha.command",
        "ha",
        "Show replication, promote a slave, let a former master rejoin.",
    ),
    "pipeline": Entry(
        "roquet.cli.pipeline.command",
        "pipeline",
        "Archive, compare, watch and replay topics, in Spark.",
    ),
    "dev": Entry(
        "roquet.cli.serve", "dev", "Run a name server and a broker in one process, on loopback."
    ),
    "completion": Entry(
        "roquet.cli.completion", "completion", "Print the script by which a shell completes words."
    ),
}


class LazyGroup(click.Group):
    """A command group that imports a subcommand only to run it.

    Otherwise `roquet --help` would import numpy and Spark.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.function)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with needed_by("this command"):
                return super().invoke(ctx)
        except MissingExtraError as error:
            end(str(error))
        except KeyboardInterrupt:
            end("interrupted", INTERRUPTED)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="roquet", message="roquet %(version)s")
def main() -> None:
    """Apache RocketMQ 4.x in Python: run its servers, and look after them."""


if __name__ == "__main__":
    main()
