"""Encodes uniform messages to records as rows of bytes, column by column.

The messages of one producer usually have records of one size that differ in the body and in a few
bytes at fixed positions. Storing a hundred of them takes as many operations as storing ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from roquet.protocol.records.columns import Bytes, Ints
from roquet.protocol.records.layout import CHECKSUM_BITS, NUMPY_TYPES, OFFSETS, fixed_fields

Checksums = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class UniformBatch:
    """Messages to store whose records have one size and differ at known positions only.

    Times are in ms since the epoch. `body` and `properties` are those of the first message, as
    stored. The properties of other messages differ in `pieces`: the byte position in the properties
    and a row per message. `keys` are for the index: the first keys of all messages, then their
    second keys, and so on. `tag_codes` is one per message, or one for all.
    """

    flag: int
    sys_flag: int
    reconsume_times: int
    born_host: bytes
    born_ms: Sequence[int] | Ints
    body: bytes
    properties: bytes
    bodies: Bytes
    checksums: Checksums
    pieces: Sequence[tuple[int, Bytes]]
    keys: Sequence[bytes]
    tag_codes: int | Sequence[int]

    def __len__(self) -> int:
        return len(self.bodies)


def rows_of(texts: bytes, count: int) -> Bytes:
    """View `count` texts of one size that are end to end as rows."""
    return np.frombuffer(texts, np.uint8).reshape(count, len(texts) // count)


def checksums(bodies: Iterable[tuple[bytes | memoryview]]) -> Checksums:
    """The checksums of bodies as in a record (docs/protocol/messages.md#stored-message)."""
    return np.fromiter(starmap(crc32, bodies), np.uint32) & np.uint32(CHECKSUM_BITS)


_OF_EACH: Final = ("crc", "queue_id", "queue_offset", "physical_offset", "born_ms")
"""The number fields that differ between records."""


@lru_cache(1024)
def _fields(record_size: int) -> np.dtype[np.void]:
    """A numpy type with the fields `_OF_EACH` of records of that size."""
    return np.dtype(
        {
            "names": _OF_EACH,
            "formats": [NUMPY_TYPES[name] for name in _OF_EACH],
            "offsets": [OFFSETS[name] for name in _OF_EACH],
            "itemsize": record_size,
        }
    )


def record_rows(
    messages: UniformBatch,
    first_record: bytes | bytearray,
    queue_ids: Ints,
    queue_offsets: Ints,
    physical: Ints,
) -> Bytes:
    """Encode the messages as records, one per row.

    :param first_record: the record of the first message. Its number fields are overwritten with the
        values of each message.
    """
    size = len(first_record)
    properties_at = size - len(messages.properties)
    body_at = fixed_fields(messages.sys_flag).size
    records = np.empty((len(messages), size), np.uint8)
    records[:] = np.frombuffer(first_record, np.uint8)
    records[:, body_at : body_at + len(messages.body)] = messages.bodies
    for at, rows in messages.pieces:
        records[:, properties_at + at : properties_at + at + rows.shape[1]] = rows
    fields = records.view(_fields(size))[:, 0]
    fields["crc"] = messages.checksums
    fields["queue_id"] = queue_ids
    fields["queue_offset"] = queue_offsets
    fields["physical_offset"] = physical
    fields["born_ms"] = messages.born_ms
    return records


_DIGITS: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
"""Byte -> its two hexadecimal digits."""


def message_ids(host: bytes, physical: Ints) -> bytes:
    """The offset message ids (docs/protocol/messages.md#offset-message-id), a comma after each.

    :param host: address and port of the broker in hexadecimal digits.
    """
    at = len(host)
    ids = np.empty((len(physical), at + 17), np.uint8)
    ids[:, :at] = np.frombuffer(host, np.uint8)
    ids[:, at:-1] = _DIGITS[physical.astype(">i8").view(np.uint8)].view(np.uint8).reshape(-1, 16)
    ids[:, -1] = ord(",")
    return ids.tobytes()
