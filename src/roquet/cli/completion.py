"""`roquet completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print the script by which a shell completes words.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete the commands and options of roquet.

    For bash, add this line to ~/.bashrc: eval "$(roquet completion bash)"
    """
    script = get_completion_class(shell)
    assert script is not None  # click has all that `shell` may be
    command = context.find_root().command
    click.echo(script(command, {}, "roquet", "_ROQUET_COMPLETE").source())
