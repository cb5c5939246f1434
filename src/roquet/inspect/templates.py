"""Topic and properties of many records that differ in their values only, read as rows of bytes."""

from __future__ import annotations

import numpy as np

from roquet.protocol import message as m
from roquet.protocol.columns import Bools, Bytes


class Template:
    """Topic and properties of one record: which bytes another one must share to be read alike.

    Keeps: `values` are where the values stand that matter here; `keys` each key of the index.
    """

    def __init__(self, tail: bytes, topic_size: int) -> None:
        self.topic = tail[:topic_size].decode("ascii")
        self.values: dict[str, slice] = {}
        self._fixed: Bools = np.ones(len(tail), bool)
        self._tail = np.frombuffer(tail, np.uint8)
        at = topic_size + 2
        for pair in tail[at:].split(b"\x02"):
            name, separator, value = pair.partition(b"\x01")
            if name and separator and value:
                span = slice(at + len(name) + 1, at + len(pair))
                self.values[name.decode("ascii")] = span
                self._fixed[span] = False
            at += len(pair) + 1
        self.keys = [self.values[m.UNIQ_KEY]] if m.UNIQ_KEY in self.values else []
        self.keys += self._words() if m.KEYS in self.values else []

    def _words(self) -> list[slice]:
        """Where the words of KEYS stand; the blanks between them must be the same in all records."""
        span = self.values[m.KEYS]
        found: list[slice] = []
        at = span.start
        for word in self._tail[span].tobytes().split(b" "):
            if word:
                found.append(slice(at, at + len(word)))
            at += len(word) + 1
        self._fixed[span] = self._tail[span] == 0x20
        return found

    def fits(self, tails: Bytes) -> Bools:
        """Which of the records have the same bytes there, and no separator anywhere else."""
        fits: Bools = ((tails == self._tail) | ~self._fixed).all(axis=1)
        fits &= ~((tails == 0x02) & ~self._fixed).any(axis=1)
        if m.KEYS in self.values:
            span = self.values[m.KEYS]
            fits &= ~((tails[:, span] == 0x20) & ~self._fixed[span]).any(axis=1)
        return fits
