"""Codec of a batch's body: messages of one topic, end to end.

See docs/protocol/messages.md#batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final

FIELDS: Final = {"size": "i", "magic": "i", "crc": "i", "flag": "i", "body_size": "i"}
"""The fields before the body, in order: name -> code of the module `struct`. All are big-endian.

`size` is that of the whole element; magic and checksum are 0. After the body come the size of the
properties (2 bytes) and the properties.
"""
HEAD: Final = Struct(">" + "".join(FIELDS.values()))
_SHORT: Final = Struct(">H")


def batch_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message of a batch."""
    size = HEAD.size + len(body) + _SHORT.size + len(properties)
    return b"".join(
        (HEAD.pack(size, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    )


def split_batch(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (flag, body, properties) of each message of a batch.

    :raises ValueError: the sizes in the batch do not add up.
    """
    at, end = 0, len(data)
    try:
        while at < end:
            size, _, _, flag, body_size = HEAD.unpack_from(data, at)
            body_at = at + HEAD.size
            properties_at = body_at + body_size + _SHORT.size
            (properties_size,) = _SHORT.unpack_from(data, properties_at - _SHORT.size)
            at += size
            if body_size < 0 or properties_at + properties_size != at or at > end:
                raise ValueError(
                    f"batch: a message of {size} bytes whose parts do not add up, "
                    f"before byte {at} of {end}"
                )
            yield flag, data[body_at : body_at + body_size], data[properties_at:at]
    except struct_error as error:
        raise ValueError(f"batch: cut short at byte {at} of {end}") from error
