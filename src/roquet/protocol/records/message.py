"""Messages: properties, flags, names, tag codes and ids (docs/protocol/messages.md)."""

from __future__ import annotations

import re
import reprlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, overload

from roquet.common.java import INT_MAX, INT_MIN
from roquet.errors import MessageError

if TYPE_CHECKING:  # a client that is imported does not load numpy
    from roquet.protocol.records.columns import Bools, Ints

NAME_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

TOPIC_SIZE_MAX: Final = 127
PROPERTIES_SIZE_MAX: Final = 32_767
"""In bytes. Java reads both sizes as signed numbers, of one and two bytes."""
GROUP_SIZE_MAX: Final = 255

# sysFlag (docs/protocol/messages.md#sysflag)
COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_BITS: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
COMPRESSION_TYPE_BITS: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

# property names (docs/protocol/messages.md#properties)
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
_UNIQ_KEY_IS: Final = UNIQ_KEY + NAME_SEPARATOR
_AND_WAIT: Final = f"{PROPERTY_SEPARATOR}{WAIT}{NAME_SEPARATOR}true"
_AND_NO_WAIT: Final = f"{PROPERTY_SEPARATOR}{WAIT}{NAME_SEPARATOR}false"
CLUSTER: Final = "CLUSTER"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
FIRST_HALF_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
ARRIVE_TIME: Final = "ARRIVE_TIME"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
INSTANCE_ID: Final = "INSTANCE_ID"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"

RESERVED_PROPERTIES: Final = frozenset(
    [
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "MSG_REGION",
        "TRACE_ON",
        "UNIQ_KEY",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "INNER_MULTI_QUEUE_OFFSET",
    ]
)
"""Property names that an application must not use."""

OF_HALF_MESSAGES: Final = frozenset((FIRST_HALF_OFFSET, CHECK_TIMES))
"""Properties that only brokers write: the offset of the half message and the check-backs so far.

A client that forwards a message with all its properties may send them along.
"""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
DEFAULT_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

NOT_SENDABLE: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_OP_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    )
)
"""Topics to which clients cannot send (docs/protocol/messages.md#system-topics)."""
SYSTEM_TOPICS: Final = NOT_SENDABLE | {DEFAULT_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}
"""Topics of every broker that belong to no application."""
SYSTEM_PREFIX: Final = "rmq_sys_"
"""How other topics begin that belong to no application."""

_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


DELAY_LEVELS: Final = 18
"""How many delay levels brokers have by default."""


class Permission(IntEnum):
    """Bits of a topic's or broker's `perm`."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE: Final = 6


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker (a master and its slaves share the broker's name).

    Ordered by topic, broker name and queue id, as every member of a group must order them
    (docs/protocol/consuming.md#rebalance).
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    :param body: at least one byte. A bytearray or memoryview is copied.
    :param keys: one or more words by which the message can be queried, none of them with a blank.
    :param tags: one word by which consumers filter.
    :param properties: further names and texts.
    :param flag: a number for the application, a Java `int`.
    :param delay_level: 1 to 18 delay the delivery (1s 5s 10s 30s 1m ... 2h); 0: no delay. Brokers
        may have more or fewer levels; a number above their last level means the last. So a number
        above 18 is a `UserWarning`.
    :param wait_stored: property WAIT. True: the broker answers when the message is flushed and
        replicated as its settings require. False: it answers at once.
    :raises MessageError: the protocol cannot carry a field, or it has a wrong type; the error names
        the field.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_stored: bool = True

    # Each field has its own test, so that fields which are not given cost next to nothing.
    def __post_init__(self) -> None:
        check_topic(self.topic)
        if type(self.body) is not bytes:
            object.__setattr__(self, "body", _body_of(self.body))
        if not self.body:
            raise MessageError("a message needs a body of at least one byte")
        if self.tags is not None:
            _check_tags(self.tags)
        if self.keys != ():
            object.__setattr__(self, "keys", _keys_of(self.keys))
        if self.properties or type(self.properties) is not dict:
            _check_properties(self.properties)
        if type(self.delay_level) is not int or not 0 <= self.delay_level <= DELAY_LEVELS:
            _check_delay_level(self.delay_level)
        if type(self.flag) is not int or not INT_MIN <= self.flag <= INT_MAX:
            check_number("flag", self.flag, INT_MIN, INT_MAX)
        if type(self.wait_stored) is not bool:
            raise wrong_type("wait_stored", self.wait_stored, "True or False")

    @property
    def key_list(self) -> tuple[str, ...]:
        return (self.keys,) if isinstance(self.keys, str) else self.keys

    def wire_properties(self, unique_key: str, more: Mapping[str, str] | None = None) -> str:
        """The properties as text, for a send.

        :param more: properties that the client adds.
        :raises MessageError: the text is larger than brokers accept.
        """
        text = f"{_UNIQ_KEY_IS}{unique_key}{_AND_WAIT if self.wait_stored else _AND_NO_WAIT}"
        if self.properties or more:
            text = (
                f"{join_properties({**self.properties, **(more or {})})}{PROPERTY_SEPARATOR}{text}"
            )
        if self.tags:
            text += f"{PROPERTY_SEPARATOR}{TAGS}{NAME_SEPARATOR}{self.tags}"
        if self.keys:
            text += f"{PROPERTY_SEPARATOR}{KEYS}{NAME_SEPARATOR}{' '.join(self.key_list)}"
        if self.delay_level:
            text += f"{PROPERTY_SEPARATOR}{DELAY}{NAME_SEPARATOR}{self.delay_level:d}"
        if (
            len(text) > PROPERTIES_SIZE_MAX // 4
            and (size := len(text.encode())) > PROPERTIES_SIZE_MAX
        ):
            raise MessageError(
                f"properties, tags and keys of {size} bytes, allowed are {PROPERTIES_SIZE_MAX}"
            )
        return text


def wrong_type(name: str, value: object, allowed: str) -> MessageError:
    """The error for an argument of a wrong type.

    :param allowed: what to give instead.
    """
    return MessageError(
        f"{name} is {reprlib.repr(value)} of type {type(value).__name__}: give {allowed}"
    )


def _check_delay_level(level: int) -> None:
    """Check a number that is not one of the usual levels.

    One that is higher is no error: brokers may have more levels.
    """
    check_number("delay_level", level, 0, INT_MAX, ": 0 is none, 1 the shortest delay")
    if level > DELAY_LEVELS:
        warnings.warn(
            f"delay_level is {level}: it is the number of a delay, not a time. Brokers have "
            f"{DELAY_LEVELS}, the last is 2 hours, unless their messageDelayLevel names more; a "
            "number above the last means the last",
            stacklevel=4,
        )


def _body_of(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    hint = "text.encode()" if isinstance(body, str) else "encode the value first"
    raise MessageError(f"body is of type {type(body).__name__}: give bytes ({hint})")


def _check_tags(tags: str) -> None:
    if not isinstance(tags, str):
        raise wrong_type("tags", tags, "one text, or None")
    if "||" in tags or tags != tags.strip():
        raise MessageError(
            f"tags is {tags!r}: no filter selects a tag with || in it or a blank at an end, "
            "because || separates the tags of a filter; a message has one tag"
        )
    _check_text("tags", tags)


def _keys_of(keys: object) -> str | tuple[str, ...]:
    """The keys, checked. No key, and an empty one alone, are ()."""
    if not isinstance(keys, str | tuple | list):
        raise wrong_type("keys", keys, "a text, or a tuple of texts")
    if keys == "":
        return ()
    for key in (keys,) if isinstance(keys, str) else keys:
        if not isinstance(key, str):
            raise wrong_type("a key of keys", key, "a text")
        if not key or " " in key:
            raise MessageError(
                f"keys has {key!r}: a blank separates keys, so a key has none, and one character "
                "at least; give several keys as a tuple"
            )
        _check_text("keys", key)
    return keys if isinstance(keys, str) else tuple(keys)


def _check_properties(properties: Mapping[str, str]) -> None:
    if not isinstance(properties, Mapping):
        raise wrong_type("properties", properties, "a dict of texts")
    for name, value in properties.items():
        if not isinstance(name, str):
            raise wrong_type("a name of properties", name, "a text")
        if not isinstance(value, str):
            raise wrong_type(f"property {name!r}", value, "a text")
        if name in RESERVED_PROPERTIES:
            raise MessageError(f"property {name} belongs to the protocol; use another name")
        if not name.strip() or not value.strip():
            raise MessageError(f"property {name!r}: neither name nor value may be blank")
        _check_text("properties", f"{name}={value}")


def _check_text(what: str, text: str) -> None:
    """:raises MessageError: `text` has a separator, or a lone surrogate: UTF-8 cannot encode it."""
    if NAME_SEPARATOR in text or PROPERTY_SEPARATOR in text:
        raise MessageError(f"{what}: {text!r} holds a byte 1 or 2, which separates properties")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MessageError(f"{what}: {text!r} is no Unicode text: {error.reason}") from None


def check_number(name: str, value: object, low: int, high: int, hint: str = "") -> None:
    """Check a number that an application gave.

    :param hint: the end of the error's text if the number is out of range.
    :raises MessageError: it is none, or out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, value, f"a number from {low} to {high}")
    if not low <= value <= high:
        raise MessageError(f"{name} is {value}{hint or f': allowed are {low} to {high}'}")


def check_queue(queue: MessageQueue) -> None:
    """Check the type of a queue and of its parts.

    :raises MessageError: one has a wrong type.
    """
    if not isinstance(queue, MessageQueue):
        raise wrong_type("queue", queue, "a MessageQueue")
    if (
        type(queue.queue_id) is not int
        or not isinstance(queue.broker_name, str)
        or not isinstance(queue.topic, str)
    ):
        raise MessageError(
            f"queue is {queue!r}: give a MessageQueue of a topic, a broker name and a number"
        )


@overload
def is_queued(sys_flag: int) -> bool: ...
@overload
def is_queued(sys_flag: Ints) -> Bools: ...
def is_queued(sys_flag: int | Ints) -> bool | Bools:
    """Whether a record gets a queue entry. Prepared and rolled back records do not.

    Both have the bit `TRANSACTION_PREPARED`. Apache's broker compares both transaction bits, with
    the same outcome (docs/storage/consume-queue.md#which-records-have-an-entry).
    """
    return sys_flag & TRANSACTION_PREPARED == 0


def reply_topic(cluster: str) -> str:
    """The topic in which replies of request-reply calls are stored."""
    return f"{cluster}_REPLY_TOPIC"


def is_legal_name(name: str) -> bool:
    """Whether a topic or group can have that name. Queue files are in folders of these names."""
    return _LEGAL_NAME.fullmatch(name) is not None


def check_topic(topic: str) -> None:
    """Check a topic's name (docs/protocol/messages.md#names).

    :raises MessageError: no topic can have it.
    """
    if not isinstance(topic, str):
        raise wrong_type("topic", topic, "a name")
    _check_topic_name(topic)


@lru_cache(256)
def _check_topic_name(topic: str) -> None:
    """Each message has its topic checked, and there are few. Errors are not kept."""
    if not topic.strip():
        raise MessageError("the topic's name is blank")
    if len(topic) > TOPIC_SIZE_MAX:
        raise MessageError(
            f"topic name of {len(topic)} characters, allowed are {TOPIC_SIZE_MAX}: {topic[:40]}..."
        )
    if not is_legal_name(topic):
        raise MessageError(f"topic name {topic!r}: allowed are letters, digits and %|_-")


def check_group(group: str) -> None:
    """Check a group's name.

    :raises MessageError: no group can have it.
    """
    if not isinstance(group, str):
        raise wrong_type("group", group, "a name")
    if not group.strip():
        raise MessageError("the group's name is blank")
    if len(group) > GROUP_SIZE_MAX:
        raise MessageError(f"group name of {len(group)} characters, allowed are {GROUP_SIZE_MAX}")
    if not is_legal_name(group):
        raise MessageError(f"group name {group!r}: allowed are letters, digits and %|_-")


def join_properties(pairs: Mapping[str, str]) -> str:
    """Encode properties as text, without a separator at the end (as Apache since 4.9.1)."""
    return PROPERTY_SEPARATOR.join(name + NAME_SEPARATOR + value for name, value in pairs.items())


def split_properties(text: str) -> dict[str, str]:
    """Decode properties. As in Apache, pairs without separator, name or value are skipped.

    See docs/protocol/messages.md#properties.
    """
    pairs: dict[str, str] = {}
    for segment in text.split(PROPERTY_SEPARATOR):
        name, separator, value = segment.partition(NAME_SEPARATOR)
        if name and value and separator:
            pairs[name] = value
    return pairs


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: a signed 32-bit hash of the UTF-16 code units."""
    number = 0
    if text.isascii():
        for unit in text.encode():
            number = (31 * number + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    return number - 0x100000000 if number & 0x80000000 else number


def tag_code(tags: str | None) -> int:
    """The tag code of a consume queue entry: the tag's Java hash, 0 without a tag."""
    return java_hash(tags) if tags else 0


_ID_V4: Final = Struct(">4siq")
_ID_V6: Final = Struct(">16siq")


def offset_message_id(store_host: bytes, physical: int) -> str:
    """The offset message id: store host and physical offset in hexadecimal digits.

    A damaged record may have a negative offset, which is encoded as Java does.

    :param store_host: address and port, as stored.
    """
    return (store_host + physical.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_message_id(message_id: str) -> tuple[bytes, int, int]:
    """Decode an offset message id to address bytes, port and physical offset.

    :raises MessageError: `message_id` is none. A client's UNIQ_KEY of the same length is recognized
        by an impossible port.
    """
    try:
        raw = bytes.fromhex(message_id)
        address, port, at = (_ID_V4 if len(raw) == 16 else _ID_V6).unpack(raw)
    except (ValueError, struct_error) as error:
        raise MessageError(
            f"{message_id!r} is no offset message id: 32 or 56 hex digits"
        ) from error
    if not 0 < port < 65536 or at < 0:
        raise MessageError(f"{message_id!r} is no offset message id: port {port}, offset {at}")
    return address, port, at
