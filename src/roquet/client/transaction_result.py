"""The outcome of a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult
from roquet.protocol.headers.transactions import COMMIT, ROLLBACK, UNKNOWN
from roquet.protocol.records.message import Message


class TransactionState(Enum):
    """The outcome of a transaction.

    - COMMIT: the message is delivered.
    - ROLLBACK: the message is never delivered.
    - UNKNOWN: not decided yet; the broker asks later (check-back).
    """

    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = UNKNOWN


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


Local = Callable[[Message, str], Awaitable[TransactionState]]
"""Message, transaction id -> outcome: the local transaction."""
Check = Callable[[ReceivedMessage], Awaitable[TransactionState]]
"""Half message -> outcome. The message's `message_id` is the transaction id."""
