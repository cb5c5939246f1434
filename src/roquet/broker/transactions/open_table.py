"""PURE: transactions that are open, what is to be done about them, and when.

Whoever is going to ask a producer about its transaction writes the half message again first, at the end of its queue:
so the record that counts is the newest one, and what lies before all of these may be forgotten. Each of these records
names the queue offset of the first one, by which the transaction is known here.

See docs/storage/transactions.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.common.units import LONG_MAX
from roquet.protocol.java_numbers import int_or, long_or
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group that has the progress in both queues, half messages and ends."""
END_TAG: Final = "d"
"""What an end of a transaction is tagged with."""


@dataclass(frozen=True, slots=True)
class HalfRecord:
    """The newest record of an open transaction.

    `transaction` is the queue offset of its first record, `offset` its own. Times are in ms, by a clock that nobody
    sets: when the transaction's first record was stored, and when this one was; `immune_ms` is how long after the
    first nobody is to be asked, None where the message does not say.
    """

    transaction: int
    offset: int
    began_ms: float
    stored_ms: float
    checks: int = 0
    immune_ms: int | None = None


def half_with(
    pairs: Mapping[str, str], transaction: int, offset: int, began_ms: float, stored_ms: float
) -> HalfRecord:
    """What the properties of a half message say; whatever they are, they say something."""
    immune_s = long_or(pairs.get(m.CHECK_IMMUNITY_SECONDS), -1)
    checks = max(0, int_or(pairs.get(m.CHECK_TIMES), 0))
    return HalfRecord(
        transaction, offset, began_ms, stored_ms, checks, immune_s * 1000 if immune_s >= 0 else None
    )


def ended_halves(record: Record) -> list[int]:
    """Queue offsets of the half messages whose transactions a record of ends closes.

    4.x writes one number, 5.x several with a comma behind each.
    """
    if record.properties.get(m.TAGS) != END_TAG:
        return []
    words = record.body.decode("ascii", "replace").split(",")
    return [offset for word in words if (offset := long_or(word, -1)) >= 0]


class Due(Enum):
    """What is to be done about an open transaction."""

    ASK = "ask its producer"
    RENEW = "write it again, so that what lies before it may be forgotten"
    DISCARD = "give up"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """When producers are asked; times in ms.

    `timeout_ms` is how old a transaction is when they are asked first, `period_ms` how often it is looked for such,
    `kept_ms` how old a message may get in this broker. One that seems older is asked about once more before it is given
    up: at a start only the wall clock says how old it is, and that may be wrong.
    """

    timeout_ms: int = 6000
    checks_max: int = 15
    period_ms: int = 60_000
    kept_ms: int = 72 * 3_600_000

    def due(self, half: HalfRecord, now_ms: float) -> Due | None:
        """None: not now."""
        age_ms = now_ms - half.began_ms
        is_old = age_ms > self.kept_ms
        if half.checks and (is_old or half.checks >= self.checks_max):
            return Due.DISCARD
        if is_old or age_ms >= (self.timeout_ms if half.immune_ms is None else half.immune_ms):
            return Due.ASK
        return (
            Due.RENEW if now_ms - half.stored_ms >= max(self.timeout_ms, self.period_ms) else None
        )


class OpenTransactions:
    """Keeps: each open transaction is here once, with its newest record; in the order of these records' offsets. The
    progress does not pass half messages that could not be read: they may be open.

    :param begin: queue offset of the first half message that was looked at, `ends_begin` of the first end.
    """

    def __init__(self, begin: int = 0, ends_begin: int = 0) -> None:
        self.begin = begin
        self._next = begin
        self._open: dict[int, HalfRecord] = {}
        self._not_read: dict[int, None] = {}
        """Queue offsets of half messages that could not be read, which ascend."""
        self._ends: deque[int] = deque()
        """Which half message the ends from `_ends_begin` on closed; of several, the last."""
        self._ends_begin = ends_begin

    def __len__(self) -> int:
        return len(self._open)

    def get(self, transaction: int) -> HalfRecord | None:
        return self._open.get(transaction)

    def all(self) -> list[HalfRecord]:
        """Oldest record first."""
        return list(self._open.values())

    def opened(self, half: HalfRecord) -> None:
        """A half message was stored, the first time or again."""
        self._open.pop(half.transaction, None)
        self._open[half.transaction] = half
        self._next = half.offset + 1

    def ended(self, half: HalfRecord) -> None:
        """A transaction is over."""
        self._open.pop(half.transaction, None)
        self._not_read.pop(half.offset, None)
        self._next = max(self._next, half.offset + 1)

    def end_not_read(self) -> None:
        """An end cannot be read now: a later start is to look at it again."""
        self._ends.append(LONG_MAX)

    def not_read(self, offset: int) -> None:
        """A half message without an end cannot be read now; offsets ascend."""
        self._not_read[offset] = None
        self._next = offset + 1

    def may_be_open(self, offset: int) -> bool:
        """Whether the half message at a queue offset could not be read at the start."""
        return offset in self._not_read

    def forget_before(self, offset: int) -> None:
        """The half messages before it are gone from the queue."""
        while self._not_read and (first := next(iter(self._not_read))) < offset:
            del self._not_read[first]

    def end_stored(self, halves: Iterable[int]) -> None:
        """The end of transactions was stored; it names these half messages."""
        self._ends.append(max(halves, default=-1))

    @property
    def progress(self) -> int:
        """Queue offset of the first half message that may matter to whoever starts anew."""
        progress = next(iter(self._open.values())).offset if self._open else self._next
        return min(progress, next(iter(self._not_read), progress))

    @property
    def ends_progress(self) -> int:
        """Queue offset of the first end that may matter, likewise."""
        progress = self.progress
        while self._ends and self._ends[0] < progress:
            self._ends.popleft()
            self._ends_begin += 1
        return self._ends_begin
