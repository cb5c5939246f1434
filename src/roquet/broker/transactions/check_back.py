"""Check-back: a master asks producers about open transactions, and gives up unanswered ones.

See docs/storage/transactions.md#when-a-producer-is-asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from roquet.broker.metadata.members import Producers
from roquet.broker.transactions.half_messages import HalfMessages, destination
from roquet.broker.transactions.open_table import CheckRules, Due, HalfRecord
from roquet.common.failure_streak import FailureStreak
from roquet.errors import Refused, StoreBusy, UnreadableFile
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)

_SHOWN_MAX: Final = 100
"""Characters of a name in a log line."""
_CHECKED_AT_ONCE: Final = 1000
"""Transactions that are checked in one slice of the event loop."""
_PAUSE_S: Final = 0.05
_PAUSES_MAX: Final = 40
_BYTES_AT_ONCE: Final = 64 * 1024
"""Bytes of messages that are written in one slice of the event loop."""


@dataclass(slots=True)
class _Tally:
    """How often an event happened in one round, and the first transaction it happened to."""

    count: int = 0
    first: str = ""

    def note(self, what: str) -> None:
        self.count += 1
        self.first = self.first or what


def _described(record: Record) -> str:
    """Message id and producer group of a transaction, cut and quoted: clients can set any text."""
    key = record.properties.get(m.UNIQ_KEY)
    group = record.properties.get(m.PRODUCER_GROUP)
    return f"{(key or record.offset_message_id)[:_SHOWN_MAX]!r} of {(group or '')[:_SHOWN_MAX]!r}"


class CheckBack:
    """Checks all open transactions each round: asks producers, renews or gives up transactions.

    Invariant: a half message is written again before its producer is asked, and the question names
    the new record. So a late answer names a record that exists (docs/pitfalls.md#trap-42).

    :param broker_name: the broker's name in each question.
    :param clock_ms: the clock of the times in `HalfRecord`.
    """

    def __init__(
        self,
        halves: HalfMessages,
        producers: Producers[Connection],
        rules: CheckRules,
        broker_name: str,
        clock_ms: Callable[[], float],
    ) -> None:
        self._halves = halves
        self._producers = producers
        self._rules = rules
        self._broker_name = broker_name
        self._clock_ms = clock_ms
        self._turn = 0
        self._do_not_read: set[str] = set()
        """Groups that are not asked again in this round, because no producer reads its socket."""
        self._failed_rounds = FailureStreak()
        self._given_up = _Tally()
        self._without_producer = _Tally()
        self._unusable = _Tally()

    async def round(self) -> None:
        """Check all transactions that are open now.

        If the store refuses messages, the rest waits for the next round.
        """
        self._do_not_read.clear()
        self._given_up, self._without_producer, self._unusable = _Tally(), _Tally(), _Tally()
        try:
            await self._check(self._halves.open.all())
        except (Refused, StoreBusy, OSError) as error:
            if self._failed_rounds.failed():
                log.error(
                    "not all open transactions were checked, "
                    "the next round checks the rest: error=%s",
                    error,
                )
        else:
            self._failed_rounds.ended()
            self._halves.note_offsets()
        self._log_tallies()

    def _log_tallies(self) -> None:
        """Log one line per kind of event of this round: there may be thousands of transactions."""
        given_up = self._given_up
        without = self._without_producer
        unusable = self._unusable
        if given_up.count:
            log.warning(
                "transactions given up, their messages were moved:"
                " topic=%s count=%d checks=%d first=%s",
                m.CHECK_MAX_TIME_TOPIC,
                given_up.count,
                self._rules.checks_max,
                given_up.first,
            )
        if without.count:
            log.info(
                "open transactions have no connected producer: count=%d first=%s",
                without.count,
                without.first,
            )
        if unusable.count:
            log.error(
                "half messages given up, they cannot be committed or are not in the log any more:"
                " count=%d first=%s",
                unusable.count,
                unusable.first,
            )

    async def _check(self, halves: Iterable[HalfRecord]) -> None:
        """Do what is due for each transaction that has not changed meanwhile, in slices.

        :raises Refused, OSError: the store refuses messages.
        :raises UnreadableFile: some half messages could not be read; all others were checked.
        """
        checked = size = 0
        unreadable: UnreadableFile | None = None
        for half in halves:
            due = self._rules.due(half, self._clock_ms())
            if due is not None and self._halves.open.get(half.transaction) is half:
                self._halves.require_room()
                try:
                    size += await self._settle(half, due)
                except UnreadableFile as error:
                    # it stays open; half messages in other files are still checked
                    unreadable = error
            checked += 1
            if checked >= _CHECKED_AT_ONCE or size >= _BYTES_AT_ONCE:
                checked = size = 0
                await asyncio.sleep(0)
        if unreadable is not None:
            raise unreadable

    async def _settle(self, half: HalfRecord, due: Due) -> int:
        """Do what is due for one transaction. Returns roughly how many bytes were written."""
        record = self._halves.record_of(half)
        if record is None:
            self._unusable.note(f"half message {half.offset}: not in the log any more")
            self._halves.roll_back(half)
            return 0
        try:
            destination(record)
        except Refused as error:
            self._unusable.note(f"half message {half.offset}: {error.remark}")
            self._halves.give_up(record, half)
            return 500 + len(record.body)
        match due:
            case Due.RENEW:
                self._halves.renew(record, half, half.checks)
            case Due.DISCARD:
                self._give_up(half, record)
            case Due.ASK:
                group = record.properties.get(m.PRODUCER_GROUP, "")
                if (
                    await self._can_be_asked(group)
                    and self._halves.open.get(half.transaction) is half
                ):
                    self._ask(half, record, group)
        return 500 + len(record.body)

    def _give_up(self, half: HalfRecord, record: Record) -> None:
        """Move the half message to the topic of given-up transactions.

        An admin can resume it there by its message id (RESUME_CHECK_HALF_MESSAGE).
        """
        self._given_up.note(_described(record))
        self._halves.give_up(record, half)

    async def _can_be_asked(self, group: str) -> bool:
        """Whether a producer of the group reads its socket, or no producer is connected.

        If none reads, this waits for up to 2 s, once per round and group. The group's other
        transactions are then not checked before the next round, and no check is counted.
        """
        for _ in range(_PAUSES_MAX):
            channels = self._producers.channels(group)
            if not channels or any(channel.is_writable for channel in channels):
                return True
            if group in self._do_not_read:
                return False
            await asyncio.sleep(_PAUSE_S)
        log.warning(
            "producers do not read transaction checks, they are asked again in the next round:"
            " group=%s",
            group,
        )
        self._do_not_read.add(group)
        return False

    def _ask(self, half: HalfRecord, record: Record, group: str) -> None:
        """Renew the half message and ask a producer. Counts as a check even without a producer."""
        renewed = self._halves.renew(record, half, half.checks + 1)
        channel = self._next_of(self._producers.channels(group))
        if channel is not None:
            channel.calls.notify(self._question(renewed))
            return
        self._without_producer.note(_described(renewed))

    def _next_of(self, channels: list[Connection]) -> Connection | None:
        """The next channel whose producer reads its socket, round-robin."""
        self._turn += 1
        for number in range(len(channels)):
            channel = channels[(self._turn + number) % len(channels)]
            if channel.is_writable:
                return channel
        return None

    def _question(self, record: Record) -> Command:
        """CHECK_TRANSACTION_STATE with the message as consumers would get it."""
        unique_key = record.properties.get(m.UNIQ_KEY)
        header = CheckTransactionHeader(
            record.queue_offset,
            record.physical_offset,
            unique_key,
            unique_key,
            record.offset_message_id,
            self._broker_name,
        )
        topic, queue_id = destination(record)
        body = replace(record, topic=topic, queue_id=queue_id).encode()
        return Command(RequestCode.CHECK_TRANSACTION_STATE, header.write(), body)
