"""Reports bytes of a log that are no valid record."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from roquet.errors import RoquetError
from roquet.spark._arrow.corrupt import CORRUPT, LeftOut
from roquet.spark._arrow.slices import numbers, words
from roquet.spark._options.mode import Mode
from roquet.storetool.files import SegmentFiles
from roquet.storetool.read.log_scanner import Damage


class CorruptStore(RoquetError):  # noqa: N818
    """A store has bytes that should be records but are not valid; see the option mode."""


def in_words(log: SegmentFiles, damage: Damage) -> str:
    """A text with the file, the positions of the bytes in it, and what is wrong with them."""
    path, start = log.place(damage.start)
    size = damage.end - damage.start
    where = f"{path}, bytes {start} to {start + size - 1} ({size} bytes)"
    if not path.exists():
        return (
            f"{where}: there is no such file: it was deleted meanwhile, "
            "or this machine does not have it"
        )
    return f"{where}: {damage.reason}"


class DamageReport:
    """Reports the damage in one part of a store: as an error; or in the log and in `_corrupt`."""

    def __init__(self, log: SegmentFiles, mode: Mode, schema: pa.Schema, broker_name: str) -> None:
        self._log = log
        self._mode = mode
        self._schema = schema
        self._broker_name = broker_name
        self._left_out = LeftOut()

    def of(self, damage: Damage) -> pa.RecordBatch | None:
        """The row for a damage; None if the schema does not have `_corrupt`.

        :raises CorruptStore: mode is FAILFAST.
        """
        text = in_words(self._log, damage)
        if self._mode is Mode.FAILFAST:
            raise CorruptStore(f"{text}; mode=PERMISSIVE reads the rest, and logs what it skips")
        self._left_out.tell(text)
        if CORRUPT not in self._schema.names:
            return None
        known = {
            CORRUPT: words([text]),
            "brokerName": words([self._broker_name]),
            "commitLogOffset": numbers(np.array([damage.start], np.int64), pa.int64()),
        }
        arrays = [known.get(column.name, pa.nulls(1, column.type)) for column in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def close(self, start: int, end: int) -> None:
        """Log the total of damage in the part at physical offsets [start, end)."""
        self._left_out.close(f"{self._broker_name}[{start}, {end})")
