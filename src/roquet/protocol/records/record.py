"""Codec of records: a stored message has the same bytes in the commit log and in a pull's answer.

See docs/protocol/messages.md#stored-message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from operator import attrgetter
from typing import Final

from roquet.errors import CorruptRecord
from roquet.protocol.records.layout import (
    FIELDS,
    HOST_BITS,
    MAGIC,
    SIZE_MIN,
    checksum,
    fields_struct,
    find_parts,
    fixed_fields,
    is_record_head,
    pack_into,
    record_struct,
    size_and_magic,
)
from roquet.protocol.records.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    offset_message_id,
    split_properties,
)

_NAMES: Final = [*FIELDS]
_CRC: Final = _NAMES.index("crc")
_OF_RECORD: Final = slice(_NAMES.index("queue_id"), _NAMES.index("body_size"))
"""The fields of the table that are the first fields of `Record`, in the same order."""
_VALUES: Final = attrgetter(*_NAMES[_OF_RECORD])
_SYS_FLAG: Final = _NAMES[_OF_RECORD].index("sys_flag")
BAD_CHECKSUM: Final = "its body does not have the stored checksum"
_TO_DECODE: Final = fields_struct("size", "magic", "sys_flag")
_TO_CHECK: Final = fields_struct("magic", "crc", "physical_offset", "sys_flag")


@dataclass(slots=True)
class Record:
    """One stored message. Nothing changes it; frozen, it would take three times as long to make.

    Times in ms since the epoch. Hosts as stored: address (4 or 16 bytes) and port (4 bytes).
    """

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
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
        sys_flag = self.sys_flag & ~HOST_BITS | host_bits(self.born_host, self.store_host)
        values = [*_VALUES(self)]
        values[_SYS_FLAG] = sys_flag
        topic, properties = self.topic.encode(), self.properties_text.encode()
        pack = record_struct(sys_flag, len(self.body), len(topic), len(properties))
        data = bytearray(pack.size)
        pack_into(pack, data, 0, *(*values, self.body, topic, properties))
        return bytes(data)


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


def check(data: memoryview, physical: int, *, verify: bool) -> None:
    """Check the record `data` without decoding it.

    The sizes of its parts must add up, and its physical offset must be `physical`. The checksum
    covers the body alone. A record of which only the beginning was written (by a slave that
    received no more, or by a drive that lost power) ends with zeros. It is recognized by them: no
    topic has a zero byte, and no broker stores properties that end with one.

    :param verify: also compare the body with its checksum.
    :raises CorruptRecord: the record is damaged.
    """
    size = len(data)
    magic, crc, physical_offset, sys_flag = _TO_CHECK.unpack_from(data)
    body_at, body_end, topic_at, properties_at = find_parts(
        data, 0, size, magic, sys_flag, physical
    )
    if physical_offset != physical:
        raise CorruptRecord(physical, "its physical offset field has another value")
    if 0 in data[topic_at : properties_at - 2] or (properties_at < size and not data[-1]):
        raise CorruptRecord(physical, "its topic or properties were not written completely")
    if verify and checksum(data[body_at:body_end]) != crc:
        raise CorruptRecord(physical, BAD_CHECKSUM)


def decode(data: bytes | bytearray | memoryview, at: int = 0, *, verify: bool = False) -> Record:
    """Decode the record that starts at index `at` of `data`.

    :param verify: also compare the body with its checksum.
    :raises CorruptRecord: there is no valid record; the error's `at` is the index in `data`.
    """
    available = len(data) - at
    if available < SIZE_MIN:
        raise CorruptRecord(at, f"{available} bytes are too few")
    size, magic, sys_flag = _TO_DECODE.unpack_from(data, at)
    if not is_record_head(size, magic, available):
        raise CorruptRecord(at, f"size {size}, magic {magic:#010x}, {available} bytes left")
    body_at, body_end, topic_at, properties_at = find_parts(data, at, size, magic, sys_flag, at)
    values = fixed_fields(sys_flag).unpack_from(data, at)
    crc = values[_CRC]
    body = bytes(data[body_at:body_end])
    if verify and checksum(body) != crc:
        raise CorruptRecord(at, BAD_CHECKSUM)
    try:
        topic = str(data[topic_at : properties_at - 2], "utf-8")
        properties = str(data[properties_at : at + size], "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(at, f"topic or properties are not UTF-8: {error}") from error
    return Record(*(*values[_OF_RECORD], body, topic, properties, crc))


def properties_of(record: bytes | bytearray) -> dict[str, str] | None:
    """Decode only the properties of a record.

    Bytes that are not UTF-8 become U+FFFD.

    :returns: None if the sizes of the record's parts do not add up.
    """
    if len(record) < SIZE_MIN:
        return None
    _, magic, sys_flag = _TO_DECODE.unpack_from(record)
    try:
        *_, properties_at = find_parts(record, 0, len(record), magic, sys_flag, 0)
    except CorruptRecord:
        return None
    return split_properties(str(record[properties_at:], "utf-8", "replace"))


def decode_all(data: bytes | bytearray | memoryview) -> Iterator[Record]:
    """Decode the records of a pull's answer, in order.

    Messages of one producer often have the same sizes. Behind two such records the next ones are
    unpacked in one step, which halves the time; they are the same records as `decode` makes.

    :raises CorruptRecord: a record is damaged.
    """
    at, size, alike = 0, 0, None
    while at < len(data):
        record = None if alike is None else alike.decode(data, at)
        if record is None:
            record = decode(data, at)
            before, size = size, size_and_magic(data, at)[0]
            alike = _alike(record) if size == before else None
        yield record
        at += size


def _alike(record: Record) -> _Alike | None:
    """What decodes records like this one; None if its parts are larger than brokers of 4.x write.

    RocketMQ 5.x has longer topics.
    """
    try:
        return _Alike(record)
    except ValueError:
        return None


class _Alike:
    """Decodes records whose parts have the same sizes as those of one that was decoded."""

    __slots__ = ("_host_bits", "_pack", "_sizes")

    def __init__(self, record: Record) -> None:
        """:raises ValueError: the topic or the properties are too large."""
        topic, properties = record.topic.encode(), record.properties_text.encode()
        sizes = len(record.body), len(topic), len(properties)
        self._host_bits = record.sys_flag & HOST_BITS
        self._pack = record_struct(self._host_bits, *sizes)
        self._sizes = self._pack.size, MAGIC, *sizes

    def decode(self, data: bytes | bytearray | memoryview, at: int) -> Record | None:
        """The record at index `at`; None if `decode` must tell what is there."""
        if at + self._pack.size > len(data):
            return None
        # Names for all fields: a list, sliced and unpacked again, takes half as long again.
        (
            size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms,
            born_host, store_ms, store_host, reconsume_times, prepared_offset,
            body_size, body, topic_size, topic, properties_size, properties,
        ) = self._pack.unpack_from(data, at)  # fmt: skip
        sizes = size, magic, body_size, topic_size, properties_size
        if sizes != self._sizes or sys_flag & HOST_BITS != self._host_bits:
            return None
        try:
            return Record(
                queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host,
                store_ms, store_host, reconsume_times, prepared_offset, body,
                str(topic, "utf-8"), str(properties, "utf-8"), crc,
            )  # fmt: skip
        except UnicodeDecodeError:
            return None
