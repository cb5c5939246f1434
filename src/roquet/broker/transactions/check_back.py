"""Asks producers about transactions that they left open, on a master.

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
from roquet.errors import Refused, UnreadableFile
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)

_SHOWN_MAX: Final = 100
"""Characters of a name in a line of the log."""
_LOOKED_AT_ONCE: Final = 1000
"""Transactions that are looked at before others have their turn."""
_PAUSE_S: Final = 0.05
_PAUSES_MAX: Final = 40
_BYTES_AT_ONCE: Final = 64 * 1024
"""Bytes of messages that are written before others have their turn."""


@dataclass(slots=True)
class _Told:
    """How often something happened in one round, and to whom first."""

    count: int = 0
    first: str = ""

    def note(self, what: str) -> None:
        self.count += 1
        self.first = self.first or what


def _described(record: Record) -> str:
    """A transaction by its message's id and its producers' group; either may hold anything."""
    key, group = record.properties.get(m.UNIQ_KEY), record.properties.get(m.PRODUCER_GROUP)
    return f"{(key or record.offset_message_id)[:_SHOWN_MAX]!r} of {(group or '')[:_SHOWN_MAX]!r}"


class CheckBack:
    """Keeps: a transaction is written again before its producers are asked, and they are told of that record; so an
    answer that comes late names one that is there (docs/pitfalls.md#trap-42).

    :param broker_name: told with each question.
    :param clock_ms: the clock that times of open transactions are of.
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
        """Groups whose producers are asked no more in this round."""
        self._is_held_up = False
        """Whether the last round met a store that takes nothing, which was told then."""
        self._given_up = _Told()
        self._without_producer = _Told()
        self._unusable = _Told()

    async def round(self) -> None:
        """Look at all that are open now; where the store takes nothing the rest waits for the next round."""
        self._do_not_read.clear()
        self._given_up, self._without_producer, self._unusable = _Told(), _Told(), _Told()
        try:
            await self._look_at(self._halves.open.all())
        except (Refused, OSError) as error:
            if not self._is_held_up:
                log.error(
                    "open transactions are not checked to the end, each round tries to go on: %s",
                    error,
                )
            self._is_held_up = True
        else:
            self._is_held_up = False
            self._halves.note_progress()
        self._tell()

    def _tell(self) -> None:
        """A line for each kind of thing that happened in this round: there may be thousands of transactions."""
        given_up, without, unusable = self._given_up, self._without_producer, self._unusable
        if given_up.count:
            text = (
                "transactions are given up, their messages are in %s: count=%d checks=%d first=%s"
            )
            log.warning(
                text, m.CHECK_MAX_TIME_TOPIC, given_up.count, self._rules.checks_max, given_up.first
            )
        if without.count:
            text = (
                "transactions are open, and no producer of theirs is connected: count=%d first=%s"
            )
            log.info(text, without.count, without.first)
        if unusable.count:
            text = "half messages cannot be committed or are gone from the log, they are given up: count=%d first=%s"
            log.error(text, unusable.count, unusable.first)

    async def _look_at(self, halves: Iterable[HalfRecord]) -> None:
        """Do what is due of each that still is as it was; others have their turn now and then.

        :raises Refused, OSError: the store takes nothing. UnreadableFile: some could not be read, all others are done.
        """
        looked_at = size = 0
        unreadable: UnreadableFile | None = None
        for half in halves:
            due = self._rules.due(half, self._clock_ms())
            if due is not None and self._halves.open.get(half.transaction) is half:
                self._halves.require_room()
                try:
                    size += await self._settle(half, due)
                except (
                    UnreadableFile
                ) as error:  # it stays open, and those in other files have their turn
                    unreadable = error
            looked_at += 1
            if looked_at >= _LOOKED_AT_ONCE or size >= _BYTES_AT_ONCE:
                looked_at = size = 0
                await asyncio.sleep(0)
        if unreadable is not None:
            raise unreadable

    async def _settle(self, half: HalfRecord, due: Due) -> int:
        """Do what is due; gives about how many bytes that was."""
        record = self._halves.record_of(half)
        if record is None:
            self._unusable.note(f"half message {half.offset}: it is gone")
            self._halves.roll_back(half)
            return 0
        try:
            destination(record)
        except Refused as error:
            self._unusable.note(f"half message {half.offset}: {error.remark}")
            due = Due.DISCARD
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
        """It may be resumed by its message id there (RESUME_CHECK_HALF_MESSAGE)."""
        self._given_up.note(_described(record))
        self._halves.give_up(record, half)

    async def _can_be_asked(self, group: str) -> bool:
        """Whether a producer of the group reads what it is sent, or none is there. One that does not is waited for once
        in a round; the rest of its questions are no checks, and have to wait for the next.
        """
        for _ in range(_PAUSES_MAX):
            channels = self._producers.channels(group)
            if not channels or any(channel.is_writable for channel in channels):
                return True
            if group in self._do_not_read:
                return False
            await asyncio.sleep(_PAUSE_S)
        log.warning(
            "producers of %s do not read what they are asked: they are asked again in the next round",
            group,
        )
        self._do_not_read.add(group)
        return False

    def _ask(self, half: HalfRecord, record: Record, group: str) -> None:
        """Nobody being there counts as a check, too."""
        renewed = self._halves.renew(record, half, half.checks + 1)
        channel = self._next_of(self._producers.channels(group))
        if channel is not None:
            channel.notify(self._question(renewed))
            return
        self._without_producer.note(_described(renewed))

    def _next_of(self, channels: list[Connection]) -> Connection | None:
        """One that takes more, each in its turn."""
        self._turn += 1
        for number in range(len(channels)):
            channel = channels[(self._turn + number) % len(channels)]
            if channel.is_writable:
                return channel
        return None

    def _question(self, record: Record) -> Command:
        """CHECK_TRANSACTION_STATE; its body is the message as its consumers would get it."""
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
