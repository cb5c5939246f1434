"""What commands print: tables, times, progress, and the line that says why nothing could be done.

Topics, groups and client ids are what peers chose: all of it goes through `printable`, or is JSON.
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
"""The exit code of a command that could not do what it was asked for."""
FAILED: Final = 1
"""The exit code of a server that what it was told does not keep from running, but the machine does."""

DRIVE_FAILED: Final = 74
"""The exit code of a broker whose drive failed under it: EX_IOERR of BSD's sysexits.h."""

_with_all_letters: Final = json.JSONEncoder(ensure_ascii=False).encode


def show(text: str) -> None:
    """A line of what was asked for."""
    click.echo(printable(text))


def say(text: str) -> None:
    """A line on standard error."""
    click.echo(printable(f"roquet: {text}"), err=True)


def json_line(value: object) -> str:
    """JSON with letters of all alphabets as they are; in ASCII where one of its characters is not printed."""
    line = _with_all_letters(value)
    return line if line.isprintable() else json.dumps(value)


def end(text: str, code: int = CANNOT) -> NoReturn:
    """End the command with a line that says why."""
    say(text)
    sys.exit(code)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be; numbers to the right."""
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
    """A moment in ms since the epoch as UTC; `-` for none."""
    if not moment_ms:
        return "-"
    try:
        return (
            datetime.fromtimestamp(moment_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (ValueError, OverflowError):  # no clock ever said so, but a damaged file may
        return str(moment_ms)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; what is given advances it by so many bytes."""
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
