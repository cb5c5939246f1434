"""PURE: the records of the message trace, as text.

See docs/protocol/consuming.md#message-trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self, TypeAlias

from roquet.protocol.headers.transactions import COMMIT, ROLLBACK, UNKNOWN
from roquet.protocol.records.message import DELAY, KEYS, TAGS, TRAN_MSG

FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"
REGION: Final = "MSG_REGION"
TRACE_SWITCH: Final = "TRACE_ON"
"""Fields of a send's answer, and properties of a message."""
_STATES: Final = {COMMIT: "COMMIT_MESSAGE", ROLLBACK: "ROLLBACK_MESSAGE", UNKNOWN: "UNKNOW"}
"""Apache's spellings."""


class MessageKind(IntEnum):
    """What a trace calls the type of a message."""

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """The kind of a message that is sent with these properties."""
        if DELAY in properties:
            return cls(cls.DELAYED)
        return cls(cls.HALF if properties.get(TRAN_MSG) == "true" else cls.NORMAL)


class Outcome(IntEnum):
    """How the handling of a message ended, by the numbers of Java's ConsumeReturnType."""

    ACKNOWLEDGED = 0
    TIMED_OUT = 1
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """What trace records say of a message. `keys` are separated by blanks."""

    topic: str
    message_id: str
    tags: str | None
    keys: str | None

    @classmethod
    def of(cls, topic: str, message_id: str, properties: Mapping[str, str]) -> Self:
        return cls(topic, message_id, properties.get(TAGS), properties.get(KEYS))

    @property
    def words(self) -> tuple[str, ...]:
        """The words by which the records of the message are found."""
        return (*self.message_id.split(), *(self.keys or "").split())


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A message was stored. `address` is the broker's, `body_size` in bytes as it was sent."""

    time_ms: int
    region: str
    group: str
    message: TracedMessage
    address: str
    body_size: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str
    is_ok: bool

    @property
    def text(self) -> str:
        message = self.message
        return _record(
            "Pub", self.time_ms, self.region, self.group, message.topic, message.message_id,
            message.tags, message.keys, self.address, self.body_size, self.cost_ms, self.kind,
            self.offset_message_id, self.is_ok,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeliveredRecord:
    """A message was given to the application. `request_id` joins it to the record of the end."""

    time_ms: int
    region: str | None
    group: str
    request_id: str
    message: TracedMessage
    reconsume_times: int

    @property
    def text(self) -> str:
        return _record(
            "SubBefore", self.time_ms, self.region, self.group, self.request_id,
            self.message.message_id, self.reconsume_times, self.message.keys,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SettledRecord:
    """The application has settled a message, or took too long."""

    request_id: str
    message: TracedMessage
    cost_ms: int
    outcome: Outcome
    time_ms: int
    group: str

    @property
    def text(self) -> str:
        return _record(
            "SubAfter", self.request_id, self.message.message_id, self.cost_ms,
            self.outcome is Outcome.ACKNOWLEDGED, self.message.keys, self.outcome, self.time_ms,
            self.group,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A producer decided a transaction, perhaps because the broker asked it.

    :param state: as in the header of END_TRANSACTION.
    """

    time_ms: int
    region: str
    group: str
    message: TracedMessage
    address: str
    transaction_id: str
    state: int
    is_check: bool

    @property
    def text(self) -> str:
        message = self.message
        return _record(
            "EndTransaction", self.time_ms, self.region, self.group, message.topic,
            message.message_id, message.tags, message.keys, self.address,
            MessageKind.TRANSACTION_END, self.transaction_id, _STATES[self.state], self.is_check,
        )  # fmt: skip


TraceRecord: TypeAlias = SentRecord | DeliveredRecord | SettledRecord | TransactionRecord


def _record(kind: str, *fields: str | int | None) -> str:
    return FIELD_SEPARATOR.join((kind, *map(_field, fields))) + RECORD_SEPARATOR


def _field(value: str | int | None) -> str:
    """A field as Java's StringBuilder writes it.

    An empty one at the end of a record would make Java's decoder fail, so there is none.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int():
            return str(int(value))
        case str():
            return value
