"""Ends transactions: END_TRANSACTION 37, and RESUME_CHECK_HALF_MESSAGE 323.

See docs/protocol/transactions.md#ending-a-transaction, docs/protocol/transactions.md#giving-up and
docs/protocol/transactions.md.
"""

from __future__ import annotations

import logging

from roquet.broker.handlers.query import offset_in
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.transactions.half_messages import HalfMessages, destination
from roquet.broker.transactions.open_table import HalfRecord
from roquet.common.limited_log import LimitedLog
from roquet.errors import Refused, StoreBusy
from roquet.protocol.headers.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    EndTransactionHeader,
    ResumeCheckHeader,
)
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer

log = logging.getLogger(__name__)


class TransactionHandler:
    """Commits and rolls back transactions, and resumes check-backs that were given up.

    Invariant: a transaction ends once. A second end changes nothing. An end that names an earlier
    record of a half message (check-backs store it again) ends the same transaction. Both hold as
    far back as this broker has read the half topic.
    """

    def __init__(self, send_context: SendContext, halves: HalfMessages) -> None:
        self._halves = halves
        self._store = send_context.store
        self._ack_gate = send_context.ack_gate
        self._is_slave = send_context.config.is_slave
        self._limited_log = LimitedLog(log)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, request: Command, connection: Connection) -> Answer:
        """End a transaction as its producer says; "unknown" has no effect and no answer."""
        try:
            header = EndTransactionHeader.read(request.fields)
            if header.commit_or_rollback == UNKNOWN:
                return None
            self._end(header)
        except (Refused, StoreBusy) as error:
            # Clients send the request one-way, so only the log tells (docs/pitfalls.md#trap-43).
            self._limited_log.warning(
                str(error.code) if isinstance(error, Refused) else type(error).__name__,
                "client cannot end a transaction: peer=%s error=%s header=%.1000s",
                connection.peer_address,
                error,
                request.fields,
            )
            raise
        answer = request.answer(ResponseCode.SUCCESS).encode()
        if self._ack_gate.waits and not request.is_one_way:
            return self._ack_gate.hold(connection, answer, self._store.log.end)
        return answer

    def _end(self, header: EndTransactionHeader) -> None:
        self._check_broker()
        if header.commit_or_rollback not in (COMMIT, ROLLBACK):
            remark = (
                f"commitOrRollback is {header.commit_or_rollback}: it must be "
                f"{COMMIT} (commit), {ROLLBACK} (rollback) or {UNKNOWN} (unknown)"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        record = self._named(header)
        half = self._open(record)
        if header.commit_or_rollback == COMMIT:
            self._halves.commit(record, half)
        else:
            self._halves.roll_back(half)

    def _check_broker(self) -> None:
        if self._is_slave:
            raise Refused(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "this broker is a slave: transactions end at its master",
            )
        self._halves.require_room()

    def _named(self, header: EndTransactionHeader) -> Record:
        """The half message that the request names.

        :raises Refused: there is none at its offset, or group or queue offset differ.
        """
        record = self._halves.record_at(header.commit_log_offset)
        if record is None or record.topic != m.HALF_TOPIC:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no half message at physical offset {header.commit_log_offset}",
            )
        group = record.properties.get(m.PRODUCER_GROUP)
        if group != header.producer_group:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the half message belongs to producer group {group}",
            )
        if record.queue_offset != header.tran_state_table_offset:
            remark = (
                f"the half message has queue offset {record.queue_offset}, "
                f"not {header.tran_state_table_offset}"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return record

    def _open(self, record: Record) -> HalfRecord:
        """The newest half message of the transaction that `record` belongs to.

        It is unknown whether a transaction is open if its half message could not be read at the
        start, or is before all that was read then: it may have ended, or been stored again by an
        Apache broker, which does not name the first record. Then the producer is believed.

        :raises Refused: the transaction has ended.
        """
        named = self._halves.half_of(record)
        half = self._halves.open.get(named.transaction)
        if half is not None:
            return half
        if named.transaction >= self._halves.open.begin and not self._halves.open.may_be_open(
            named.offset
        ):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the transaction has ended already")
        return named

    def resume(self, request: Command, _: Connection) -> Command:
        """Restart the check-backs of a transaction, with a count of 0, even if it was given up."""
        self._check_broker()
        record = self._of_id(ResumeCheckHeader.read(request.fields).msg_id)
        half = (
            self._halves.open.get(self._halves.half_of(record).transaction)
            if record.topic == m.HALF_TOPIC
            else None
        )
        if half is None and record.topic != m.CHECK_MAX_TIME_TOPIC:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "the message belongs to no transaction that is open or was given up",
            )
        destination(record)
        self._halves.resume(record, half)
        self._limited_log.tell(
            logging.INFO,
            "resume",
            "check-backs of a transaction restarted: message=%s",
            record.offset_message_id,
        )
        return request.answer(ResponseCode.SUCCESS)

    def _of_id(self, message_id: str) -> Record:
        record = self._halves.record_at(offset_in(message_id))
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this broker has no message {message_id}")
        return record
