"""The command's own frame: help and subcommands by name."""

from __future__ import annotations

import subprocess
import sys
from typing import NoReturn

import click
from click.testing import CliRunner

from roquet.cli.main import COMMANDS, LazyGroup, main


def test_help_lists_every_subcommand_with_its_line() -> None:
    result = CliRunner().invoke(main, ["--help"])

    assert result.exit_code == 0
    for name, entry in COMMANDS.items():
        assert f"{name} " in result.stdout
        assert entry.help in result.stdout


def test_help_imports_no_server() -> None:
    script = (
        "import sys\n"
        "from roquet.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({'asyncio', 'rich', 'orjson', 'numpy', 'roquet.cli.serve'} & set(sys.modules)))\n"
    )

    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert output.splitlines()[-1] == "[]"


def test_an_unknown_subcommand_is_named() -> None:
    result = CliRunner().invoke(main, ["brokre"])

    assert result.exit_code == 2
    assert "No such command 'brokre'" in result.stderr


class OfInterrupted(LazyGroup):
    """Its only command is interrupted at once."""

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command:
        return click.Command(cmd_name, callback=interrupt)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def test_ctrl_c_ends_a_command_with_130() -> None:
    result = CliRunner().invoke(OfInterrupted("roquet"), ["any"])

    assert (result.exit_code, result.stderr) == (130, "roquet: interrupted\n")


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(main, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("roquet ")
