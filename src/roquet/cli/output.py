"""What commands print: tables, times, progress, and the line that says why nothing could be done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, NoReturn

import click

CANNOT: Final = 2
"""The exit code of a command that could not do what it was asked for."""
FAILED: Final = 1
"""The exit code of a server that what it was told does not keep from running, but the machine does."""

DRIVE_FAILED: Final = 74
"""The exit code of a broker whose drive failed under it: EX_IOERR of BSD's sysexits.h."""


def say(text: str) -> None:
    click.echo(f"roquet: {text}", err=True)


def end(text: str, code: int = CANNOT) -> NoReturn:
    """End the command with a line that says why."""
    say(text)
    sys.exit(code)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be; numbers to the right."""
    lines = [tuple(titles), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [all(_is_number(text) for text in column[1:]) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, widths, is_number, strict=True)
        click.echo(
            "  ".join(f"{text:>{width}}" if right else f"{text:<{width}}" for text, width, right in cells).rstrip()
        )


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdigit()


def time_text(moment_ms: int | None) -> str:
    """A moment in ms since the epoch as UTC; `-` for none."""
    if not moment_ms:
        return "-"
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):  # no clock ever said so, but a damaged file may
        return str(moment_ms)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; what is given advances it by so many bytes."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.update(task, advance=size)
