"""PURE: the table of open transactions, and the rules for when they are checked.

Before a producer is asked about a transaction, its half message is written again at the end of the
queue. So the newest record of each transaction counts, and records before the oldest of these are
not read again. Each record names the queue offset of the transaction's first record, which
identifies the transaction.

See docs/storage/transactions.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.common.java import LONG_MAX, int_or, long_or
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets say from where a start reads half messages and op messages."""
END_TAG: Final = "d"
"""The tag of op messages."""


@dataclass(frozen=True, slots=True)
class HalfRecord:
    """The newest record of an open transaction.

    `transaction` is the queue offset of the transaction's first record, `offset` of this record.
    `began_ms` is when the first record was stored, `stored_ms` when this one was (ms, monotonic
    clock). The producer is not asked for `immune_ms` after `began_ms`; None: the message sets no
    such time.
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
    """A `HalfRecord` with the checks and the immunity time from a half message's properties.

    Invalid values count as missing.
    """
    immune_s = long_or(pairs.get(m.CHECK_IMMUNITY_SECONDS), -1)
    checks = max(0, int_or(pairs.get(m.CHECK_TIMES), 0))
    return HalfRecord(
        transaction, offset, began_ms, stored_ms, checks, immune_s * 1000 if immune_s >= 0 else None
    )


def ended_halves(record: Record) -> list[int]:
    """The queue offsets of the half messages that an op message ends.

    4.x writes one number, 5.x several, each followed by a comma.
    """
    if record.properties.get(m.TAGS) != END_TAG:
        return []
    words = record.body.decode("ascii", "replace").split(",")
    return [offset for word in words if (offset := long_or(word, -1)) >= 0]


class Due(Enum):
    """The action that is due for an open transaction."""

    ASK = "ask its producer"
    RENEW = "write it again, so that a start need not read the records before it"
    DISCARD = "give up"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """When and how often producers are asked about open transactions; times in ms.

    `timeout_ms` is the age at which a transaction is first checked, `period_ms` the time between
    two rounds, `checks_max` the number of checks before it is given up, `kept_ms` the retention
    time of messages. A transaction older than `kept_ms` is given up once it has been checked; one
    that never was is checked first: after a start its age is known by the wall clock only, which
    may be wrong.
    """

    timeout_ms: int = 6000
    checks_max: int = 15
    period_ms: int = 60_000
    kept_ms: int = 72 * 3_600_000

    def due(self, half: HalfRecord, now_ms: float) -> Due | None:
        """The action that is due for a transaction, None if none is."""
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
    """The table of open transactions.

    Invariant: each open transaction is here once, with its newest record, in the order of these
    records' offsets. `halves_offset` does not pass half messages that could not be read, because
    they may be open.

    :param begin: the queue offset of the first half message that was read.
    :param ends_begin: the queue offset of the first op message that was read.
    """

    def __init__(self, begin: int = 0, ends_begin: int = 0) -> None:
        self.begin = begin
        self._next = begin
        self._open: dict[int, HalfRecord] = {}
        self._not_read: dict[int, None] = {}
        """Queue offsets of half messages that could not be read, ascending."""
        self._ends: deque[int] = deque()
        """For each op message from `_ends_begin` on, the last half message that it ends."""
        self._ends_begin = ends_begin

    def __len__(self) -> int:
        return len(self._open)

    def get(self, transaction: int) -> HalfRecord | None:
        return self._open.get(transaction)

    def all(self) -> list[HalfRecord]:
        """All open transactions, oldest record first."""
        return list(self._open.values())

    def opened(self, half: HalfRecord) -> None:
        """Add a half message that was stored, or replace its older record."""
        self._open.pop(half.transaction, None)
        self._open[half.transaction] = half
        self._next = half.offset + 1

    def ended(self, half: HalfRecord) -> None:
        """Remove a transaction that has ended."""
        self._open.pop(half.transaction, None)
        self._not_read.pop(half.offset, None)
        self._next = max(self._next, half.offset + 1)

    def end_not_read(self) -> None:
        """Count an op message that cannot be read now; a later start will read it again."""
        self._ends.append(LONG_MAX)

    def not_read(self, offset: int) -> None:
        """Remember a half message that cannot be read now. Called with ascending offsets."""
        self._not_read[offset] = None
        self._next = offset + 1

    def may_be_open(self, offset: int) -> bool:
        """Whether the half message at a queue offset could not be read at the start."""
        return offset in self._not_read

    def forget_before(self, offset: int) -> None:
        """Forget unreadable half messages before a queue offset, which were deleted."""
        while self._not_read and (first := next(iter(self._not_read))) < offset:
            del self._not_read[first]

    def end_stored(self, halves: Iterable[int]) -> None:
        """Count an op message that was stored; `halves` are the half messages that it ends."""
        self._ends.append(max(halves, default=-1))

    @property
    def halves_offset(self) -> int:
        """The queue offset from which a start must read half messages."""
        offset = next(iter(self._open.values())).offset if self._open else self._next
        return min(offset, next(iter(self._not_read), offset))

    @property
    def ends_offset(self) -> int:
        """The queue offset from which a start must read op messages."""
        offset = self.halves_offset
        while self._ends and self._ends[0] < offset:
            self._ends.popleft()
            self._ends_begin += 1
        return self._ends_begin
