"""Codec of records: a stored message has the same bytes in the commit log and in a pull's answer.

See docs/protocol/messages.md#stored-message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from typing import Final
from zlib import crc32

from roquet.common.units import PhysicalOffset, QueueOffset
from roquet.errors import CorruptRecord
from roquet.protocol.records.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    offset_message_id,
    split_properties,
)
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX

MAGIC: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""RocketMQ 5.x, with a two-byte topic length: read, never written."""
BLANK_MAGIC: Final = 0xCBD43194
BLANK_SIZE: Final = 8
SIZE_MIN: Final = 91

_V4: Final = Struct(">IIIiiqqiq8sq8siqi")
_FIXED: Final = {
    0: _V4,
    BORN_HOST_V6: Struct(">IIIiiqqiq20sq8siqi"),
    STORE_HOST_V6: Struct(">IIIiiqqiq8sq20siqi"),
    BORN_HOST_V6 | STORE_HOST_V6: Struct(">IIIiiqqiq20sq20siqi"),
}
"""The fields up to and including the body's length, by the two host bits of the sysFlag."""
_SIZE_AND_MAGIC: Final = Struct(">II")
_SYS_FLAG_AT: Final = 36
_SYS_FLAG: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_MAGIC_AND_CRC: Final = Struct(">II")
_PHYSICAL_AT: Final = 28
_PHYSICAL: Final = Struct(">q")
HEAD_SIZE: Final = _PHYSICAL_AT + _PHYSICAL.size
RECORD_SIZE_MAX: Final = FRAME_SIZE_MAX + 1024 * 1024
"""Upper bound of a record: its message came in one frame, and the broker adds a few properties."""


TOPIC_BYTES_MAX: Final = 127
PROPERTIES_BYTES_MAX: Final = 32_767
"""Java reads both sizes as signed numbers, of one and two bytes."""
UNWRITTEN: Final = b"\0"
NO_PLACE: Final = "the message was not stored, a value in it does not fit its field: {}"
UNTELLABLE: Final = (
    "properties end with a zero byte, which after a crash marks what was not written"
)

_LAYOUTS: Final[dict[tuple[int, int, int, int], Struct]] = {}
_LAYOUTS_MAX: Final = 4096


def layout(sys_flag: int, body_size: int, topic_size: int, properties_size: int) -> Struct:
    """The struct that packs a whole record in one call. Sizes in bytes.

    :param sys_flag: its host bits say which hosts are IPv6.
    :raises ValueError: the topic or the properties are too large for a record.
    """
    shape = (sys_flag & (BORN_HOST_V6 | STORE_HOST_V6), body_size, topic_size, properties_size)
    found = _LAYOUTS.get(shape)
    if found is None:
        check_sizes(topic_size, properties_size)
        if len(_LAYOUTS) >= _LAYOUTS_MAX:
            _LAYOUTS.clear()
        fixed = _FIXED[shape[0]].format
        found = _LAYOUTS[shape] = Struct(f"{fixed}{body_size}sB{topic_size}sH{properties_size}s")
    return found


def check_sizes(topic_size: int, properties_size: int) -> None:
    """:raises ValueError: the topic or the properties are too large for a record."""
    if topic_size > TOPIC_BYTES_MAX or properties_size > PROPERTIES_BYTES_MAX:
        allowed = f"allowed are {TOPIC_BYTES_MAX} and {PROPERTIES_BYTES_MAX}"
        raise ValueError(
            f"a topic of {topic_size} and properties of {properties_size} bytes, {allowed}"
        )


def fixed_fields(sys_flag: int) -> Struct:
    """The struct of the fields up to and including the body's length.

    :param sys_flag: its host bits say which hosts are IPv6.
    """
    return _FIXED[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]


@dataclass(frozen=True, slots=True)
class Record:
    """One stored message.

    Times in ms since the epoch. Hosts as stored: address (4 or 16 bytes) and port (4 bytes).
    """

    queue_id: int
    flag: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: PhysicalOffset
    body: bytes
    topic: str
    properties_text: str
    body_crc: int = 0

    @property
    def properties(self) -> dict[str, str]:
        return split_properties(self.properties_text)

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(self.store_host, self.physical_offset)

    def encode(self) -> bytes:
        """The record's bytes. Checksum and host bits are computed, not taken from the fields."""
        sys_flag = self.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | host_bits(
            self.born_host, self.store_host
        )
        topic, properties = self.topic.encode(), self.properties_text.encode()
        pack = layout(sys_flag, len(self.body), len(topic), len(properties))
        return pack.pack(
            pack.size,
            MAGIC,
            checksum(self.body),
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.physical_offset,
            sys_flag,
            self.born_ms,
            self.born_host,
            self.store_ms,
            self.store_host,
            self.reconsume_times,
            self.prepared_offset,
            len(self.body),
            self.body,
            len(topic),
            topic,
            len(properties),
            properties,
        )


def checksum(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of the body as stored (it may be compressed), without the top bit."""
    return crc32(body) & 0x7FFFFFFF


def host_bytes(host: str, port: int) -> bytes:
    """Encode a host for a record: 4 or 16 bytes of address, 4 bytes of port.

    An IPv4-mapped IPv6 address is stored as IPv4. A zone ("%eth0") is dropped.
    """
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).packed + port.to_bytes(4, "big")


def host_text(host: bytes) -> str:
    """Decode stored host bytes to `address:port`, IPv6 in brackets."""
    address, port = ip_address(host[:-4]), int.from_bytes(host[-4:], "big")
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def host_bits(born_host: bytes, store_host: bytes) -> int:
    """The two sysFlag bits that say which hosts are IPv6."""
    return (BORN_HOST_V6 if len(born_host) > 8 else 0) | (
        STORE_HOST_V6 if len(store_host) > 8 else 0
    )


def check(data: memoryview, at: PhysicalOffset, *, verify: bool) -> None:
    """Check the record `data` without decoding it.

    The sizes of its parts must add up, and its physical offset must be `at`. The checksum covers
    the body alone. A record of which only the beginning was written (by a slave that received no
    more, or by a drive that lost power) ends with zeros. It is recognized by them: no topic has a
    zero byte, and no broker stores properties that end with one.

    :param verify: also compare the body with its checksum.
    :raises CorruptRecord: the record is damaged.
    """
    (sys_flag,) = _SYS_FLAG.unpack_from(data, _SYS_FLAG_AT)
    fixed = _FIXED[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
    size = len(data)
    if size < fixed.size + 3:
        raise CorruptRecord(at, f"size {size} is too small for its hosts")
    body_size, magic, crc = (
        *_SYS_FLAG.unpack_from(data, fixed.size - 4),
        *_MAGIC_AND_CRC.unpack_from(data, 4),
    )
    body_end = fixed.size + body_size
    topic_at = body_end + (1 if magic == MAGIC else 2)
    if body_size < 0 or topic_at > size:
        raise CorruptRecord(at, f"body of {body_size} bytes in a record of {size}")
    properties_at = topic_at + int.from_bytes(data[body_end:topic_at], "big") + 2
    if (
        properties_at > size
        or properties_at + _SHORT.unpack_from(data, properties_at - 2)[0] != size
    ):
        raise CorruptRecord(at, "its parts do not add up to its size")
    if _PHYSICAL.unpack_from(data, _PHYSICAL_AT)[0] != at:
        raise CorruptRecord(at, "its physical offset field has another value")
    if 0 in data[topic_at : properties_at - 2] or (properties_at < size and not data[-1]):
        raise CorruptRecord(at, "its topic or properties were not written completely")
    if verify and checksum(data[fixed.size : body_end]) != crc:
        raise CorruptRecord(at, "its body does not have the stored checksum")


def decode(data: bytes | bytearray | memoryview, at: int = 0, *, verify: bool = False) -> Record:
    """Decode the record that starts at index `at` of `data`.

    :param verify: also compare the body with its checksum.
    :raises CorruptRecord: there is no valid record; the error's `at` is the index in `data`.
    """
    available = len(data) - at
    if available < SIZE_MIN:
        raise CorruptRecord(at, f"{available} bytes are too few")
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
    if magic not in (MAGIC, MAGIC_V2):
        raise CorruptRecord(at, f"magic {magic:#010x}")
    if not SIZE_MIN <= size <= available:
        raise CorruptRecord(at, f"size {size} of {available} bytes left")
    (sys_flag,) = _SYS_FLAG.unpack_from(data, at + _SYS_FLAG_AT)
    fixed = _FIXED[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
    if size < fixed.size + 3:
        raise CorruptRecord(at, f"size {size} is too small for its hosts")
    values = fixed.unpack_from(data, at)
    body, topic, properties = _tail(data, at, size, at + fixed.size, values[14], magic)
    if verify and checksum(body) != values[2]:
        raise CorruptRecord(at, f"body checksum {checksum(body)}, stored {values[2]}")
    return Record(
        values[3],
        values[4],
        QueueOffset(values[5]),
        PhysicalOffset(values[6]),
        values[7],
        values[8],
        values[9],
        values[10],
        values[11],
        values[12],
        PhysicalOffset(values[13]),
        body,
        topic,
        properties,
        values[2],
    )


def _tail(
    data: bytes | bytearray | memoryview,
    at: int,
    size: int,
    body_at: int,
    body_size: int,
    magic: int,
) -> tuple[bytes, str, str]:
    """Body, topic and properties.

    :raises CorruptRecord: their sizes do not add up to the record's size.
    """
    end = at + size
    topic_size_at = body_at + body_size
    topic_size_bytes = 1 if magic == MAGIC else 2
    if body_size < 0 or topic_size_at + topic_size_bytes > end:
        raise CorruptRecord(at, f"body of {body_size} bytes in a record of {size}")
    topic_at = topic_size_at + topic_size_bytes
    properties_size_at = topic_at + int.from_bytes(data[topic_size_at:topic_at], "big")
    if properties_size_at + 2 > end:
        raise CorruptRecord(at, "topic reaches beyond the record")
    (properties_size,) = _SHORT.unpack_from(data, properties_size_at)
    properties_at = properties_size_at + 2
    if properties_at + properties_size != end:
        raise CorruptRecord(
            at, f"parts end at {properties_at + properties_size - at}, the record at {size}"
        )
    try:
        return (
            bytes(data[body_at:topic_size_at]),
            str(data[topic_at:properties_size_at], "utf-8"),
            str(data[properties_at:end], "utf-8"),
        )
    except UnicodeDecodeError as error:
        raise CorruptRecord(at, f"topic or properties are not UTF-8: {error}") from error


def properties_of(record: bytes | bytearray) -> dict[str, str] | None:
    """Decode only the properties of a record.

    Bytes that are not UTF-8 become U+FFFD.

    :returns: None if the sizes of the record's parts do not add up.
    """
    if len(record) < SIZE_MIN:
        return None
    _, magic = _SIZE_AND_MAGIC.unpack_from(record)
    (sys_flag,) = _SYS_FLAG.unpack_from(record, _SYS_FLAG_AT)
    body_at = _FIXED[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)].size
    topic_size_at = body_at + int.from_bytes(record[body_at - 4 : body_at], "big")
    topic_at = topic_size_at + (1 if magic == MAGIC else 2)
    properties_at = topic_at + int.from_bytes(record[topic_size_at:topic_at], "big") + 2
    size = int.from_bytes(record[properties_at - 2 : properties_at], "big")
    if properties_at + size != len(record):
        return None
    return split_properties(str(record[properties_at:], "utf-8", "replace"))


def decode_all(data: bytes | bytearray | memoryview) -> Iterator[Record]:
    """Decode the records of a pull's answer, in order.

    :raises CorruptRecord: a record is damaged.
    """
    at = 0
    while at < len(data):
        yield decode(data, at)
        (size,) = _SYS_FLAG.unpack_from(data, at)
        at += size


def blank(size: int) -> bytes:
    """The first 8 bytes of a blank of `size` bytes; its other bytes are not written."""
    return _SIZE_AND_MAGIC.pack(size, BLANK_MAGIC)


def size_at(head: bytes, at: int) -> int:
    """The size of the record at physical offset `at`, from its first `HEAD_SIZE` bytes.

    :returns: 0 if `head` is not the head of that record.
    """
    if len(head) < HEAD_SIZE:
        return 0
    size, magic = _SIZE_AND_MAGIC.unpack_from(head)
    is_head = magic in (MAGIC, MAGIC_V2) and _PHYSICAL.unpack_from(head, _PHYSICAL_AT)[0] == at
    return size if is_head and size <= RECORD_SIZE_MAX else 0


def size_and_magic(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Size and magic of the record or blank at index `at`."""
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
    return size, magic
