"""`roquet completion`: the scripts for shells, and what they complete."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from roquet.cli.main import COMMANDS, main


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_calls_roquet(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])

    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_ROQUET_COMPLETE={shell}_complete" in result.stdout


def test_an_unknown_shell_is_refused() -> None:
    result = CliRunner().invoke(main, ["completion", "cmd"])

    assert result.exit_code == 2
    assert "'cmd' is not one of 'bash', 'zsh', 'fish'" in result.stderr


def test_commands_and_options_are_completed() -> None:
    complete = ShellComplete(main, {}, "roquet", "_ROQUET_COMPLETE")

    assert {item.value for item in complete.get_completions([], "")} == set(COMMANDS)
    assert "--log-level" in {item.value for item in complete.get_completions(["dev"], "--lo")}
