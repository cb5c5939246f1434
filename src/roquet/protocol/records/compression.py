"""PURE: decompresses bodies, up to a size.

A producer can store 2 MB that decompress to 2 GB, or bytes that are not zlib's. Both raise
`MessageError`, an error of that message alone.
"""

from __future__ import annotations

import zlib
from typing import Final

from roquet.errors import DamagedBody, MessageError
from roquet.protocol.records.layout import checksum
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_BITS,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

UNCOMPRESSED_MAX: Final = 64 << 20
"""Default limit of a decompressed body, in bytes.

Producers (Apache's by default, too) refuse to send bodies above 4 MiB before compression. This is
16 times as much, and still a size that a process survives.
"""


def plain_body(
    body: bytes, sys_flag: int, size_max: int = UNCOMPRESSED_MAX, crc: int | None = None
) -> bytes:
    """The body as the producer sent it, decompressed.

    :param size_max: bytes that it may have, if it is compressed.
    :param crc: the stored checksum (`Record.body_crc`). None or 0: it is not compared. Brokers that
        compute no checksums store 0, which is right for only one of 2³¹ bodies.
    :raises DamagedBody: the body does not have that checksum.
    :raises MessageError: the body is damaged, too large, or not compressed with zlib.
    """
    if crc and checksum(body) != crc:
        raise DamagedBody(
            f"the body, stored in {len(body)} bytes, does not have the checksum stored with it"
        )
    if not body or not sys_flag & COMPRESSED:
        return body  # Apache's clients do not decompress an empty body, whatever its sysFlag says
    kind = sys_flag & COMPRESSION_TYPE_BITS
    if kind not in (0, COMPRESSION_ZLIB):
        raise MessageError(f"the body is compressed with {name_of(kind)}, only zlib is supported")
    return inflated(body, size_max)


def name_of(kind: int) -> str:
    """The name of a compression, from the compression bits of a sysFlag."""
    return {COMPRESSION_LZ4: "LZ4", COMPRESSION_ZSTD: "ZSTD"}.get(kind, f"kind {kind:#x}")


def inflated(body: bytes, size_max: int) -> bytes:
    """Decompress `body` with zlib. At most `size_max` + 1 bytes are made before it is refused.

    :raises MessageError: `body` is not zlib's, or larger than `size_max` when decompressed.
    """
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(body, size_max + 1)
    except zlib.error as error:
        raise MessageError(f"the compressed body is damaged: {error}") from error
    if len(plain) > size_max:
        raise too_large(body, size_max)
    if not inflating.eof:
        raise MessageError(
            f"the compressed body is damaged: it ends after {len(body)} bytes, before its own end"
        )
    return plain


def too_large(body: bytes, size_max: int) -> MessageError:
    return MessageError(
        f"the body, stored in {len(body)} bytes, has more than {size_max} when it is decompressed"
    )
