"""Output of commands: tables, JSON, times, progress bars, errors, exit codes.

Peers choose the names of topics, groups and clients, so all text goes through `printable` or is
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, NoReturn

import click

from roquet.cli.log_lines import printable

CANNOT: Final = 2
"""The exit code of a command that could not do its work."""

FINDINGS: Final = 1
"""The exit code of a command that did its work and found damage or differences."""

FAILED: Final = 1
"""The exit code of a server that cannot run on this machine, although its settings are valid."""

DRIVE_FAILED: Final = 74
"""The exit code of a broker whose drive failed while it ran: EX_IOERR of BSD's sysexits.h."""

INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C ended, as shells give it: 128 + SIGINT."""

_with_all_letters: Final = json.JSONEncoder(ensure_ascii=False).encode


json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def show(text: str) -> None:
    """Print a line of the result to standard output."""
    click.echo(printable(text))


def say(text: str) -> None:
    """Print a line to standard error."""
    click.echo(printable(f"roquet: {text}"), err=True)


def json_line(value: object) -> str:
    """Return a value as JSON: letters of all alphabets unescaped.

    If the text has an unprintable character, all that is not ASCII is escaped.
    """
    line = _with_all_letters(value)
    return line if line.isprintable() else json.dumps(value)


def end(text: str, code: int = CANNOT) -> NoReturn:
    """Print why the command ends to standard error, and exit."""
    say(text)
    sys.exit(code)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. Columns of numbers are aligned to the right."""
    lines = [tuple(map(printable, line)) for line in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [
        all(_is_number(text) for text in column[1:]) for column in zip(*lines, strict=True)
    ]
    for line in lines:
        cells = zip(line, widths, is_number, strict=True)
        show(
            "  ".join(
                f"{text:>{width}}" if right else f"{text:<{width}}" for text, width, right in cells
            ).rstrip()
        )


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdigit()


def time_text(moment_ms: int | None) -> str:
    """Return ms since the epoch as an ISO time in UTC; `-` for None and 0."""
    if not moment_ms:
        return "-"
    try:
        return (
            datetime.fromtimestamp(moment_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (ValueError, OverflowError):  # a damaged file may have any number
        return str(moment_ms)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal.

    Yields a function that advances the bar.

    :param what: the text beside the bar.
    :param total: bytes; the function advances the bar by bytes, too.
    """
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.update(task, advance=size)
