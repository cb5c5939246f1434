"""Splits and searches the properties of many messages at once.

Invariant: the result is that of `split_properties` in roquet.protocol.records.message
(docs/protocol/messages.md#properties). Pairs without a name, a value or a separator are dropped,
and the last of several pairs with one name wins.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from roquet.protocol.records.message import NAME_SEPARATOR, PROPERTY_SEPARATOR
from roquet.spark._arrow.slices import Bytes, Ints, indices, numbers, numbers_in, slices, text

_AFTER_NAME: Final = ord(NAME_SEPARATOR)
_AFTER_PAIR: Final = ord(PROPERTY_SEPARATOR)
_CELLS_PER_PAIR: Final = 8
"""Up to this size, counting in a table of all rows and names is cheaper than sorting the pairs."""


class PropertyColumns:
    """The properties of a column of messages, as pairs of a name and a value.

    Invariant: pairs are in the order of their rows. Pair i has its name at [_name_at, _name_end)
    and its value at [_name_end + 1, _end).
    """

    def __init__(self, texts: pa.Array) -> None:
        """Split the properties into pairs.

        :param texts: the stored properties of each message, a binary array from `slices`.
        """
        self._rows = len(texts)
        _, offsets, data = texts.buffers()
        edges = np.frombuffer(offsets, np.int32, self._rows + 1).astype(np.int64)
        self._data: Bytes = (
            np.frombuffer(data, np.uint8)[: edges[-1]] if data else np.empty(0, np.uint8)
        )
        rows, starts, ends = self._segments(edges)
        name_ends = self._name_ends(starts, ends)
        pairs = np.flatnonzero((name_ends > starts) & (name_ends + 1 < ends))
        self._row: Ints = rows[pairs]
        self._name_at, self._name_end, self._end = starts[pairs], name_ends[pairs], ends[pairs]

    def values(self, name: str) -> pa.Array:
        """The value of one property in every message; null for messages without it."""
        pairs = self._named(name.encode())
        pair_of_row: Ints = np.full(self._rows, -1)
        pair_of_row[self._row[pairs]] = pairs
        has = pair_of_row >= 0
        chosen = pair_of_row[has]
        found = text(slices(self._data, self._name_end[chosen] + 1, self._end[chosen]))
        if len(found) == self._rows:
            return found
        return found.take(indices(np.cumsum(has) - 1, has))

    def maps(self, kind: pa.DataType) -> pa.Array:
        """All properties of every message, as a map array."""
        names = slices(self._data, self._name_at, self._name_end).dictionary_encode()
        codes = numbers_in(names.indices, np.int32).astype(np.int64)
        pairs = self._last_of_each_name(codes, len(names.dictionary))
        offsets = np.concatenate(
            ([0], np.cumsum(np.bincount(self._row[pairs], minlength=self._rows)))
        )
        return pa.MapArray.from_arrays(
            numbers(offsets.astype(np.int32), pa.int32()),
            text(names.dictionary).take(indices(codes[pairs])),
            text(slices(self._data, self._name_end[pairs] + 1, self._end[pairs])),
            type=kind,
        )

    def _segments(self, edges: Ints) -> tuple[Ints, Ints, Ints]:
        """Row, start and end of each text between two pair separators, including empty texts."""
        pair_ends = np.flatnonzero(self._data == _AFTER_PAIR)
        starts = np.sort(np.concatenate((edges[:-1], pair_ends + 1)), kind="stable")
        ends = np.sort(np.concatenate((pair_ends, edges[1:])), kind="stable")
        segments_of_row = np.diff(np.searchsorted(pair_ends, edges)) + 1
        return np.repeat(np.arange(self._rows), segments_of_row), starts, ends

    def _name_ends(self, starts: Ints, ends: Ints) -> Ints:
        """Where each segment's name ends, -1 if it has none."""
        separators = np.append(np.flatnonzero(self._data == _AFTER_NAME), len(self._data))
        nearest = separators[np.searchsorted(separators, starts)]
        return np.where(nearest < ends, nearest, -1)

    def _named(self, name: bytes) -> Ints:
        """The pairs of that name, in order."""
        pairs = np.flatnonzero(self._name_end - self._name_at == len(name))
        for index, byte in enumerate(name):
            pairs = pairs[self._data[self._name_at[pairs] + index] == byte]
        return pairs

    def _last_of_each_name(self, codes: Ints, kinds: int) -> Ints:
        """The pairs without those whose name follows again in the same message.

        :param codes: a number below `kinds` for the name of each pair.
        """
        row_and_name = self._row * kinds + codes
        if (
            self._rows * kinds <= _CELLS_PER_PAIR * len(row_and_name)
            and np.bincount(row_and_name, minlength=1).max() <= 1
        ):
            return np.arange(len(row_and_name))
        _, from_the_end = np.unique(row_and_name[::-1], return_index=True)
        return np.sort(len(row_and_name) - 1 - from_the_end)
