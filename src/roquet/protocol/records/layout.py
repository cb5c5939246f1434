"""PURE: the layout of a stored record: its fields, how it is packed, whether its parts add up.

A stored message has the same bytes in the commit log and in a pull's answer
(docs/storage/commit-log.md#the-record). After the fields of `FIELDS` come the body, the topic's
size (1 byte, 2 bytes with `MAGIC_V2`), the topic, the size of the properties (2 bytes), and the
properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct, calcsize
from typing import TYPE_CHECKING, Final
from zlib import crc32

from roquet.errors import CorruptRecord
from roquet.protocol.records.message import (
    BORN_HOST_V6,
    PROPERTIES_SIZE_MAX,
    STORE_HOST_V6,
    TOPIC_SIZE_MAX,
)
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""RocketMQ 5.x, with a two-byte topic length: read, never written."""
RECORD_MAGICS: Final = (MAGIC, MAGIC_V2)
BLANK_MAGIC: Final = 0xCBD43194
BLANK_SIZE: Final = 8
"""Bytes of a blank that are written: its size and magic."""

FIELDS: Final[Mapping[str, str]] = {
    "size": "I",
    "magic": "I",
    "crc": "I",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_ms": "q",
    "born_host": "8s",
    "store_ms": "q",
    "store_host": "8s",
    "reconsume_times": "i",
    "prepared_offset": "q",
    "body_size": "i",
}
"""The fields before the body, in order: name -> code of the module `struct`. All are big-endian.

A host is an IPv4 address and a port. It has 12 bytes more if the sysFlag says that it is IPv6.
"""
_HOST_V6: Final = "20s"
_V6_BITS: Final = {"born_host": BORN_HOST_V6, "store_host": STORE_HOST_V6}
HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6


def _codes(sys_flag: int) -> dict[str, str]:
    """`FIELDS` with the hosts that the sysFlag names."""
    return {
        name: _HOST_V6 if sys_flag & _V6_BITS.get(name, 0) else code
        for name, code in FIELDS.items()
    }


def offset_of(name: str, sys_flag: int = 0) -> int:
    """The byte position of a field in a record, or of the `body`, which follows the last field.

    :param sys_flag: its host bits say which hosts are IPv6.
    """
    codes = _codes(sys_flag)
    before = [*codes, "body"].index(name)
    return calcsize(">" + "".join(list(codes.values())[:before]))


OFFSETS: Final[Mapping[str, int]] = {
    name: offset_of(name) for name in FIELDS if offset_of(name) <= offset_of("born_host")
}
"""The byte positions of the fields that are at the same place whatever the hosts are."""
NUMPY_TYPES: Final[Mapping[str, str]] = {
    name: {"I": ">u4", "i": ">i4", "q": ">i8"}[code]
    for name, code in FIELDS.items()
    if name not in _V6_BITS
}
"""The numpy type of each number field."""


def fields_struct(*names: str) -> Struct:
    """The struct that reads some fields of `OFFSETS`, named in their order, from a record."""
    assert [*names] == [name for name in OFFSETS if name in names], f"the order of {names}"
    codes = [code if name in names else f"{calcsize('>' + code)}x" for name, code in FIELDS.items()]
    return Struct(">" + "".join(codes[: list(FIELDS).index(names[-1]) + 1]))


_FIXED: Final = {
    bits: Struct(">" + "".join(_codes(bits).values()))
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOST_BITS)
}
_BODY_AT: Final = {bits: fields.size for bits, fields in _FIXED.items()}


def fixed_fields(sys_flag: int) -> Struct:
    """The struct of all fields of `FIELDS`.

    :param sys_flag: its host bits say which hosts are IPv6.
    """
    return _FIXED[sys_flag & HOST_BITS]


SIZE_MIN: Final = _BODY_AT[0] + 3
SIZE_MIN_V6: Final = _BODY_AT[HOST_BITS] + 3
"""Bytes of a record without body, topic and properties, if its hosts are IPv4 and IPv6."""

RECORD_SIZE_MAX: Final = FRAME_SIZE_MAX + 1024 * 1024
"""Upper bound of a record: its message came in one frame, and the broker adds a few properties."""
SIZE_AND_MAGIC: Final = fields_struct("size", "magic")
_HEAD: Final = fields_struct("size", "magic", "physical_offset")
HEAD_SIZE: Final = _HEAD.size
_MAGIC_BYTES: Final = tuple(magic.to_bytes(4, "big") for magic in (*RECORD_MAGICS, BLANK_MAGIC))

# packing

CHECKSUM_BITS: Final = 0x7FFF_FFFF
"""The CRC-32 is stored as a signed number, without its top bit."""


@lru_cache(4096)
def record_struct(sys_flag: int, body_size: int, topic_size: int, properties_size: int) -> Struct:
    """The struct that packs a whole record in one call. Sizes in bytes.

    Packing the fixed fields and joining the parts to them takes 7 % longer for a small message, and
    copies a large one twice. Making a struct takes as long as packing, so structs are kept.

    :param sys_flag: its host bits say which hosts are IPv6.
    :raises ValueError: the topic or the properties are too large for a record.
    """
    check_sizes(topic_size, properties_size)
    fixed = fixed_fields(sys_flag).format
    return Struct(f"{fixed}{body_size}sB{topic_size}sH{properties_size}s")


def check_sizes(topic_size: int, properties_size: int) -> None:
    """:raises ValueError: the topic or the properties are too large for a record."""
    if topic_size > TOPIC_SIZE_MAX or properties_size > PROPERTIES_SIZE_MAX:
        allowed = f"allowed are {TOPIC_SIZE_MAX} and {PROPERTIES_SIZE_MAX}"
        raise ValueError(
            f"a topic of {topic_size} and properties of {properties_size} bytes, {allowed}"
        )


def check_end(properties: bytes) -> None:
    """:raises ValueError: the properties end with a zero byte, as what was not written does."""
    if properties.endswith(b"\0"):
        raise ValueError(
            "properties end with a zero byte, which after a crash marks what was not written"
        )


def pack_into(
    record: Struct,
    buffer: WriteableBuffer,
    index: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
    body: bytes,
    topic: bytes,
    properties: bytes,
) -> None:
    """Pack a record. The fields are in the order of `FIELDS`; size, magic and checksum are added.

    :param record: from `record_struct`, for this sysFlag and these sizes.
    :param index: of the record's first byte in `buffer`.
    :param sys_flag: with the host bits that fit the hosts.
    :raises ValueError, struct.error: a value does not fit its field; some bytes may be written.
    """
    check_end(properties)
    record.pack_into(
        buffer,
        index,
        record.size,
        MAGIC,
        crc32(body) & CHECKSUM_BITS,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        len(body),
        body,
        len(topic),
        topic,
        len(properties),
        properties,
    )


def checksum(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of the body as stored (it may be compressed), without the top bit."""
    return crc32(body) & CHECKSUM_BITS


def blank(size: int) -> bytes:
    """The first 8 bytes of a blank of `size` bytes; its other bytes are not written."""
    return SIZE_AND_MAGIC.pack(size, BLANK_MAGIC)


# validating


def size_and_magic(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Size and magic of the record or blank at index `at`."""
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    return size, magic


def is_record_head(size: int, magic: int, room: int) -> bool:
    """Whether a record of at most `room` bytes may begin with this size and magic."""
    return magic in RECORD_MAGICS and SIZE_MIN <= size <= room


def find_heads(data: bytes) -> list[int]:
    """Indices in `data` where by its magic a record or a blank may begin, in ascending order.

    An index is negative if the magic is in `data`, but not the size before it.
    """
    places: list[int] = []
    for magic in _MAGIC_BYTES:
        index = data.find(magic)
        while index >= 0:
            places.append(index - OFFSETS["magic"])
            index = data.find(magic, index + 1)
    return sorted(places)


def size_at(head: bytes, at: int) -> int:
    """The size of the record at physical offset `at`, from its first `HEAD_SIZE` bytes.

    :returns: 0 if `head` is not the head of that record.
    """
    if len(head) < HEAD_SIZE:
        return 0
    size, magic, physical_offset = _HEAD.unpack_from(head)
    is_head = magic in RECORD_MAGICS and physical_offset == at
    return size if is_head and size <= RECORD_SIZE_MAX else 0


_INT: Final = Struct(">i")
_SHORT: Final = Struct(">H")


def find_parts(
    data: bytes | bytearray | memoryview,
    index: int,
    size: int,
    magic: int,
    sys_flag: int,
    at: int,
) -> tuple[int, int, int, int]:
    """Find the parts of a record, whose sizes must add up to the record's size.

    :param index: of the record's first byte in `data`, which has all its bytes.
    :param size: of the record, in bytes.
    :param at: the record's physical offset, for the error.
    :returns: where the body begins and ends, where the topic begins, and where the properties
        begin; the topic ends 2 bytes before them.
    :raises CorruptRecord: the sizes do not add up.
    """
    end = index + size
    body_at = index + _BODY_AT[sys_flag & HOST_BITS]
    if body_at + 3 > end:
        raise CorruptRecord(at, f"its size of {size} bytes is too small for its hosts")
    (body_size,) = _INT.unpack_from(data, body_at - 4)
    body_end = body_at + body_size
    if body_size < 0 or body_end + 3 > end:
        raise CorruptRecord(at, f"a body of {body_size} bytes does not fit into its {size} bytes")
    if magic == MAGIC:
        topic_at, topic_size = body_end + 1, data[body_end]
    else:
        topic_at, (topic_size,) = body_end + 2, _SHORT.unpack_from(data, body_end)
    properties_at = topic_at + topic_size + 2
    if properties_at > end:
        raise CorruptRecord(at, f"a topic of {topic_size} bytes does not fit into its {size} bytes")
    properties_end = properties_at + _SHORT.unpack_from(data, properties_at - 2)[0]
    if properties_end != end:
        raise CorruptRecord(
            at, f"its parts end after {properties_end - index} bytes, it has {size} bytes"
        )
    return body_at, body_end, topic_at, properties_at
