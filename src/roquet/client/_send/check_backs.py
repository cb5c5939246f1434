"""Check-backs: brokers ask a producer for the outcome of an open transaction.

See docs/protocol/transactions.md#check-back.
"""

from __future__ import annotations

import logging
from typing import Final

from roquet.client._net.session import Session
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client.received import received
from roquet.client.transaction_result import Check, TransactionState
from roquet.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from roquet.protocol.records.message import UNIQ_KEY
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)

AT_ONCE_MAX: Final = 16
WAITING_MAX: Final = 2000
"""Check-backs beyond this number are dropped; the broker asks again."""


class CheckBacks:
    """Answers the check-backs of a producer group.

    :param check: gives the outcome of a transaction. If it raises, the broker asks again.
    """

    def __init__(self, session: Session, group: str, check: Check) -> None:
        self._session = session
        self._group = group
        self._check = check
        self._slots = FifoSemaphore(AT_ONCE_MAX)
        self._waiting = 0

    def asked(self, header: CheckTransactionHeader, record: Record, connection: Connection) -> None:
        """Answer a check-back in the background."""
        if self._waiting >= WAITING_MAX:
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
            async with self._slots:
                state = TransactionState(
                    await self._check(received(record, header.bname or "", record.reconsume_times))
                )
        except Exception:
            log.exception(
                "check of a transaction failed, the broker asks again: transaction=%s",
                header.transaction_id,
            )
            return
        finally:
            self._waiting -= 1
        if state is TransactionState.UNKNOWN:
            return
        unique_key = record.properties.get(UNIQ_KEY, record.offset_message_id)
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
