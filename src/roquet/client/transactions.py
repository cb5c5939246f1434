"""Transactions: messages that are delivered only after the producer has committed them.

See docs/protocol/transactions.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from inspect import isawaitable
from typing import Final, Unpack

from roquet.client._net.outages import level_of
from roquet.client._net.session import Session
from roquet.client._net.session_user import SessionUser
from roquet.client._net.tasks import attempt, cancel
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client._send.trace import SendTrace
from roquet.client._send.trace_records import TracedMessage
from roquet.client.config import ClientConfig, NameServers
from roquet.client.producer import Producer, ProducerOptions
from roquet.client.received import MessageSource, ReceivedMessage
from roquet.client.send_result import SendResult, SendStatus
from roquet.errors import ConfigError, RoquetError, RouteNotFound
from roquet.protocol.headers.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    CheckTransactionHeader,
    EndTransactionHeader,
)
from roquet.protocol.records.message import (
    UNIQ_KEY,
    Message,
    parse_offset_message_id,
)
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.connection import Connection

__all__ = ["TransactionProducer", "TransactionResult", "TransactionState"]

log = logging.getLogger(__name__)

CHECKS_AT_ONCE_MAX: Final = 16
CHECKS_WAITING_MAX: Final = 2000
"""Check-backs beyond this number are dropped; the broker asks again."""


class TransactionState(Enum):
    """The outcome of a transaction.

    - COMMIT: the message is delivered.
    - ROLLBACK: the message is never delivered.
    - UNKNOWN: not decided yet; the broker asks later (check-back).
    """

    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = UNKNOWN


_UNDECIDED: Final = TransactionState.UNKNOWN


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of `TransactionProducer.send_in_transaction`.

    `send_result` says where the half message is stored, `state` is the outcome. `confirmed` is True
    if the broker has acknowledged the outcome; otherwise, and for UNKNOWN, it calls `check` later.
    """

    send_result: SendResult
    state: TransactionState
    confirmed: bool

    @property
    def transaction_id(self) -> str:
        return self.send_result.message_id


Local = Callable[[Message, str], Awaitable[TransactionState] | TransactionState]
"""Message, transaction id -> outcome: the local transaction."""
Check = Callable[[ReceivedMessage], Awaitable[TransactionState] | TransactionState]
"""Half message -> outcome. The message's `message_id` is the transaction id."""


async def _outcome(given: Awaitable[TransactionState] | TransactionState) -> TransactionState:
    """What the application's function returned, be it a coroutine function or a plain one.

    A plain one has done its work by now: an error would leave a transaction open that is decided.
    """
    return TransactionState(await given if isawaitable(given) else given)


class TransactionProducer(Producer):
    """A producer of messages that are delivered only if a local transaction commits.

    The transaction may be one of a database:

        async def check(message):
            done = await booked(message.message_id)
            return TransactionState.COMMIT if done else TransactionState.ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", "billing", check) as producer:
            await producer.send_in_transaction(Message("orders", body), book)

    Brokers ask any producer of the group for the outcome of an open transaction, also one in
    another process or one that was started later. So `check` must decide by data that all of them
    can read.

    :param check: called for transactions whose outcome a broker does not know. If it raises, the
        transaction stays open and the broker asks again.
    :param topics: topics whose brokers get a heartbeat as soon as this producer starts, so that
        they can ask it about transactions that an earlier producer left open. Brokers that have the
        topic `create_topic_key` get it in any case; others get it after the first send.
    :param options: the keyword arguments of `Producer`.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | SessionUser,
        group: str,
        check: Check,
        *,
        topics: Iterable[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(name_server, group, **options)
        if not callable(check):
            raise ConfigError(f"check is {check!r}: give a coroutine function of a message")
        self._on_check_back = CheckBacks(self._session, self._group, check, self._trace).handle
        self._topics = (self._routes.new_topics.template, *map(self._names.full, topics))
        self._announcement: asyncio.Task[None] | None = None

    async def _on_start(self) -> None:
        await super()._on_start()
        self._announcement = self._session.tasks.start(
            self._announce(), f"announcing {self._group}"
        )

    async def _on_close(self) -> None:
        if self._announcement is not None:
            await cancel(self._announcement)
        await super()._on_close()

    async def _announce(self) -> None:
        """Look up the routes of `topics` until all are found.

        Each route that is found triggers a heartbeat to its brokers.
        """
        unknown = list(self._topics)
        while unknown := [topic for topic in unknown if not await self._is_known(topic)]:
            await asyncio.sleep(self.config.poll_name_server_ms / 1000)

    async def _is_known(self, topic: str) -> bool:
        try:
            await self._session.routes.refresh(topic)
        except RouteNotFound:
            log.debug("topic not found yet: topic=%s", topic)
        except RoquetError as error:
            log.log(
                level_of(error),
                "route not found, brokers cannot ask this producer yet: group=%s topic=%s error=%s",
                self._group,
                topic,
                error,
            )
        else:
            return True
        return False

    async def send_in_transaction(
        self, message: Message, local: Local, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and commit or roll back the message.

        If the half message is not stored with SEND_OK, `local` is not called and the message is
        rolled back. An exception of `local` is raised here; the transaction stays open, and the
        broker calls `check`.

        :param message: the message; without delay.
        :param local: runs the local transaction; called with the message and the transaction id. A
            plain function runs in the event loop's thread, and must not block.
        :param timeout_ms: the time in ms for the send, and again for ending the transaction.
        :raises ConfigError: `local` is no function; nothing was sent.
        :raises MessageError: the message breaks a rule, or has a delay; nothing was sent.
        :raises RoquetError: as `send`. If the message is stored all the same, the broker calls
            `check`.
        """
        self._require_open()
        if not callable(local):
            raise ConfigError(
                f"local is {local!r}: give a coroutine function of a message and a transaction id"
            )
        stored = await self._send_told(
            message,
            lambda message: self._sender.send(
                self._encoder.encode_half(message, self._group),
                self._timeout_or_default(timeout_ms),
            ),
        )
        state = TransactionState.ROLLBACK
        if stored.status is SendStatus.SEND_OK:
            state = await _outcome(local(message, stored.message_id))
        else:
            log.warning(
                "transaction rolled back, the half message is not safe: "
                "transaction=%s status=%s remark=%s",
                stored.message_id,
                stored.status.name,
                stored.remark,
            )
        is_confirmed = await attempt(
            self._end(message, stored, state, self._timeout_or_default(timeout_ms)),
            f"ending transaction {stored.message_id}",
        )
        return TransactionResult(stored, state, is_confirmed and state is not _UNDECIDED)

    async def _end(
        self, message: Message, stored: SendResult, state: TransactionState, timeout_ms: int
    ) -> None:
        """Tell the broker the outcome, and wait until it has acknowledged it.

        Apache's clients send it one-way and do not notice if it gets lost
        (docs/pitfalls.md#trap-43).
        """
        address = await self._routes.master(self._names.full_queue(stored.queue), timeout_ms)
        if self._trace is not None:
            keys = " ".join(message.key_list) or None
            traced = TracedMessage(message.topic, stored.message_id, message.tags, keys)
            self._trace.decided(traced, address, stored.message_id, state.value, is_check=False)
        if state is _UNDECIDED:
            return
        _, _, at = parse_offset_message_id(stored.offset_message_id)
        header = EndTransactionHeader(
            self._group,
            stored.queue_offset,
            at,
            state.value,
            False,
            stored.message_id,
            stored.message_id,
            stored.queue.broker_name,
        )
        request = Command(RequestCode.END_TRANSACTION, header.write())
        checked(await self._session.call(address, request, timeout_ms), address)


class CheckBacks:
    """Answers the check-backs of a producer group.

    :param check: gives the outcome of a transaction. If it raises, the broker asks again.
    :param trace: traces the outcomes, if it is given.
    """

    def __init__(
        self, session: Session, group: str, check: Check, trace: SendTrace | None = None
    ) -> None:
        self._trace = trace
        self._session = session
        self._group = group
        self._check = check
        self._slots = FifoSemaphore(CHECKS_AT_ONCE_MAX)
        self._waiting = 0

    def handle(
        self, header: CheckTransactionHeader, record: Record, connection: Connection
    ) -> None:
        """Answer a check-back in the background."""
        if self._waiting >= CHECKS_WAITING_MAX:
            log.warning(
                "too many check-backs wait, the broker asks again: transaction=%s waiting=%d",
                header.transaction_id,
                self._waiting,
            )
            return
        self._waiting += 1
        self._session.tasks.start(
            self._answer(header, record, connection), f"check of {header.transaction_id}"
        )

    async def _answer(
        self, header: CheckTransactionHeader, record: Record, connection: Connection
    ) -> None:
        """Run `check` and send the outcome on the connection of the question.

        Only the broker that asked has the half message.
        """
        try:
            state = await self._state(header, record)
        except Exception:  # of the application's own function
            log.exception(
                "check of a transaction failed, the broker asks again: transaction=%s",
                header.transaction_id,
            )
            return
        finally:
            self._waiting -= 1
        properties = record.properties
        unique_key = properties.get(UNIQ_KEY, record.offset_message_id)
        if self._trace is not None:
            self._trace.decided(
                TracedMessage.of(self._session.names.plain(record.topic), unique_key, properties),
                connection.peer_address,
                header.transaction_id or unique_key,
                state.value,
                is_check=True,
            )
        if state is _UNDECIDED:
            return
        end = EndTransactionHeader(
            self._group,
            header.tran_state_table_offset,
            header.commit_log_offset,
            state.value,
            True,
            unique_key,
            header.transaction_id or unique_key,
            header.bname,
        )
        connection.calls.notify(Command(RequestCode.END_TRANSACTION, end.write()))

    async def _state(self, header: CheckTransactionHeader, record: Record) -> TransactionState:
        """What the application says of a transaction, when its turn comes."""
        message = ReceivedMessage(
            record,
            MessageSource(header.bname or "", names=self._session.names),
            record.reconsume_times,
        )
        async with self._slots:
            return await _outcome(self._check(message))
