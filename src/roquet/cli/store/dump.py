"""`roquet store dump`: prints records as lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

import click

from roquet.cli.output import FINDINGS, json_line, progress_bar, say
from roquet.cli.store.directory import StoreLocation, end_without_topic, on_a_store
from roquet.cli.values import moment


def _range(context: click.Context, option: click.Parameter, value: str) -> tuple[int, int | None]:
    """Parse `FROM` or `FROM:TO`; TO is exclusive, None if it is missing."""
    first, _, end = value.partition(":")
    try:
        if not first.isdecimal() or not (end or "0").isdecimal():
            raise ValueError
        return int(first), int(end) if end else None
    except ValueError:  # also for more digits than Python converts
        raise click.BadParameter(
            f"{value!r} is not a queue offset or FROM:TO", context, option
        ) from None


@click.command(short_help="Print records as JSON.")
@on_a_store
@click.option("--topic", help="Print only records of this topic.")
@click.option(
    "--queue", "queue_id", type=click.IntRange(0), help="Print only records of this queue id."
)
@click.option(
    "--offset",
    "offsets",
    default="0",
    metavar="FROM[:TO]",
    callback=_range,
    help="Print only queue offsets from FROM to TO (exclusive).",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="Print only records stored at this time or later: ISO (UTC without a zone) or ms.",
)
@click.option(
    "--until", metavar="TIME", callback=moment, help="Print only records stored before this time."
)
@click.option("--key", help="Print only records with this key.")
@click.option("--limit", type=click.IntRange(0), help="The largest number of records to print.")
@click.option("--no-body", is_flag=True, help="Do not print bodies.")
@click.option(
    "-o",
    "--output",
    type=click.File("w", encoding="utf-8"),
    default="-",
    help="Write to this file.",
)
def dump(
    topic: str | None,
    queue_id: int | None,
    offsets: tuple[int, int | None],
    since: int | None,
    until: int | None,
    key: str | None,
    limit: int | None,
    no_body: bool,
    output: Any,
    **where: Any,
) -> None:
    """Print records as JSON, one per line, in the order of the log.

    With --topic and --queue the records of that queue are found by its entries. A body that is not
    UTF-8 is in `bodyBase64`. Compressed bodies are printed as they are stored. The exit code is 1
    if some records could not be read.
    """
    from roquet.storetool.dump import Wanted, as_json
    from roquet.storetool.dump import dump as records_in

    store = StoreLocation(**where)
    files = store.files
    skipped: list[str] = []
    wanted = Wanted(topic, queue_id, *offsets, since, until, key)
    is_found = topic is None or any(topic == name for name, _ in files.queues)
    with progress_bar("reading", files.log.end - files.log.start) as progress:
        records: Iterable[bytes] = islice(
            records_in(files, wanted, skipped.append, progress), limit
        )
        for data in records:
            is_found = True
            output.write(json_line(as_json(data, with_body=not no_body)) + "\n")
    for text in skipped:
        say(f"skipped: {text}")
    if skipped:
        sys.exit(FINDINGS)
    if topic is not None and not is_found:
        end_without_topic(store, topic)
