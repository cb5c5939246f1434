"""Messages that are delivered when something else has happened, and only then.

See docs/protocol/transactions.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from roquet.client._net.route_table import REFRESH_PERIOD_S
from roquet.client._net.tasks import attempt
from roquet.client._send.encoded_message import COMPRESS_FROM_SIZE, outgoing_half
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client.producer import TIMEOUT_MS, Producer
from roquet.client.received import ReceivedMessage, received
from roquet.client.send_result import SendResult, SendStatus
from roquet.common.runtime import Runtime
from roquet.errors import RoquetError, RouteNotFound
from roquet.protocol.headers.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    CheckTransactionHeader,
    EndTransactionHeader,
)
from roquet.protocol.records import message as m
from roquet.protocol.records.message import Message
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.connection import Connection, checked
from roquet.transport.tls import Tls

__all__ = ["TransactionProducer", "TransactionResult", "TransactionState"]

log = logging.getLogger(__name__)

CHECKS_AT_ONCE: Final = 16
CHECKS_WAITING_MAX: Final = 2000
"""More questions than these are left to the broker, which asks again."""


class TransactionState(Enum):
    """COMMIT: the message is delivered. ROLLBACK: it never is. UNKNOWN: not decided yet, the broker asks later."""

    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = UNKNOWN


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a transaction went: where its half message is, and what became of it.

    `confirmed`: the broker has taken note of the state. While it has not, or the state is UNKNOWN, it asks `check`.
    """

    send_result: SendResult
    state: TransactionState
    confirmed: bool

    @property
    def transaction_id(self) -> str:
        return self.send_result.message_id


Local = Callable[[Message, str], Awaitable[TransactionState]]
"""The message and the transaction's id -> what becomes of it."""
Check = Callable[[ReceivedMessage], Awaitable[TransactionState]]
"""A message that is stored and not yet delivered -> what becomes of it; `message_id` is the transaction's id."""


class TransactionProducer(Producer):
    """A producer whose messages can wait for something else, such as a database's commit:

        async def check(message):
            return TransactionState.COMMIT if await booked(message.message_id) else TransactionState.ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", "billing", check) as producer:
            await producer.send_in_transaction(Message("orders", body), book)

    Brokers ask any producer of the group, also one that runs elsewhere or was started later: `check` has to find out
    by what all of them can see.

    :param check: asked for transactions whose state a broker does not know. One that raises leaves them open.
    :param topics: whose brokers shall hear of this producer at once, to ask it about what an earlier one left open;
        others hear of it when it sends to them, or when they create topics for everybody (`TBW102`).

    All else is as for `Producer`.
    """

    def __init__(
        self,
        name_server: str,
        group: str,
        check: Check,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int = TIMEOUT_MS,
        retries: int = 2,
        compress_from_size: int = COMPRESS_FROM_SIZE,
        avoid_slow_brokers: bool = False,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        client_id: str | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(
            name_server,
            group,
            timeout_ms=timeout_ms,
            retries=retries,
            compress_from_size=compress_from_size,
            avoid_slow_brokers=avoid_slow_brokers,
            credentials=credentials,
            tls=tls,
            client_id=client_id,
            runtime=runtime,
        )
        self._check = check
        self._topics = (m.DEFAULT_TOPIC, *topics)
        self._turns = FifoSemaphore(CHECKS_AT_ONCE)
        self._checks_waiting = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._session.membership.join_as_producer(self._group, self._asked)
        self._session.tasks.start(self._announce(), f"announcing {self._group}")
        return self

    async def _announce(self) -> None:
        """A route that becomes known makes its brokers hear of us; one that is not yet is asked for again and again."""
        unknown = list(self._topics)
        while unknown := [topic for topic in unknown if not await self._is_known(topic)]:
            await asyncio.sleep(REFRESH_PERIOD_S)

    async def _is_known(self, topic: str) -> bool:
        try:
            await self._session.routes.refresh(topic)
        except RouteNotFound:
            log.debug("no broker has %s yet", topic)
        except RoquetError as error:
            log.warning(
                "the brokers of %s do not know yet that %s is here: %s", topic, self._group, error
            )
        else:
            return True
        return False

    async def send_in_transaction(
        self, message: Message, local: Local, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store a message, do something, and let the message be delivered or not.

        `local` is called once the message is stored as safely as the broker is configured to (SEND_OK); with any other
        status the transaction is rolled back without it. What `local` raises is raised here; the state is UNKNOWN then,
        so the broker asks `check`.

        :param timeout_ms: for storing it, and then again for telling the broker the state.
        :raises MessageError: the message cannot be sent as it is; one with a delay is such a one.
        :raises RoquetError: as `send`; the message may be stored or not, and the broker asks if it is.
        """
        half = outgoing_half(
            message, self._unique_keys.next(), self._compress_from_size, self._group
        )
        (stored,) = await self._sender.send(half, self._time(timeout_ms))
        state = TransactionState.ROLLBACK
        if stored.status is SendStatus.SEND_OK:
            state = TransactionState(await local(message, stored.message_id))
        else:
            log.warning(
                "transaction %s is rolled back: %s %s",
                stored.message_id,
                stored.status,
                stored.remark,
            )
        is_confirmed = state is not TransactionState.UNKNOWN and await attempt(
            lambda: self._end(stored, state, self._time(timeout_ms)),
            f"ending transaction {stored.message_id}",
        )
        return TransactionResult(stored, state, is_confirmed)

    async def _end(self, stored: SendResult, state: TransactionState, timeout_ms: int) -> None:
        """Other than Apache's clients we want to know that it worked (docs/pitfalls.md#trap-43)."""
        _, _, at = m.parse_offset_message_id(stored.offset_message_id)
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
        address = await self._sender.master(stored.queue, timeout_ms)
        request = Command(RequestCode.END_TRANSACTION, header.write())
        checked(await self._session.call(address, request, timeout_ms), address)

    # what brokers ask

    def _asked(
        self, header: CheckTransactionHeader, record: Record, connection: Connection
    ) -> None:
        if self._checks_waiting >= CHECKS_WAITING_MAX:
            log.warning(
                "too many transactions are asked for at once, %s has to wait", header.transaction_id
            )
            return
        self._checks_waiting += 1
        self._session.tasks.start(
            self._answer(header, record, connection), f"check of {header.transaction_id}"
        )

    async def _answer(
        self, header: CheckTransactionHeader, record: Record, connection: Connection
    ) -> None:
        """On the connection on which the question came: that broker has the half message."""
        try:
            async with self._turns:
                state = TransactionState(
                    await self._check(received(record, header.bname or "", record.reconsume_times))
                )
        except Exception:
            log.exception(
                "the check of transaction %s failed, the broker asks again", header.transaction_id
            )
            return
        finally:
            self._checks_waiting -= 1
        if state is TransactionState.UNKNOWN:
            return
        unique_key = record.properties.get(m.UNIQ_KEY, record.offset_message_id)
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
        connection.notify(Command(RequestCode.END_TRANSACTION, end.write()))
