"""PURE: bodies as they were before their senders compressed them, up to a size.

Whoever may send can store 2 MB that are 2 GB when they are decompressed, and bytes that are no zlib at all: both are
that message's affair, and raise `MessageError` here.
"""

from __future__ import annotations

import zlib
from typing import Final

from roquet.errors import DamagedBody, MessageError
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_BITS,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from roquet.protocol.records.record import checksum

UNCOMPRESSED_MAX: Final = 64 << 20
"""Bytes of a body that is taken for sound, unless it is said otherwise. Clients, Apache's too by default, refuse to
send bodies of more than 4 MiB before they compress them: this is sixteen times as much, and a process that has one such
body in its hands lives."""


def plain_body(
    body: bytes, sys_flag: int, size_max: int = UNCOMPRESSED_MAX, crc: int | None = None
) -> bytes:
    """The body as the producer gave it.

    :param size_max: bytes that it may have, if it was compressed.
    :param crc: the checksum stored with it (`Record.body_crc`). None: it is not compared. 0 likewise: a broker that
        makes no checksums stores that, and of 2³¹ sound bodies one has it.
    :raises DamagedBody: it does not have that checksum.
    :raises MessageError: it is damaged, larger, or compressed in another way than zlib.
    """
    if crc and checksum(body) != crc:
        raise DamagedBody(
            f"the body, stored in {len(body)} bytes, does not have the checksum stored with it"
        )
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_TYPE_BITS
    if kind not in (0, COMPRESSION_ZLIB):
        raise MessageError(f"the body is compressed with {name_of(kind)}, only zlib is supported")
    return inflated(body, size_max)


def name_of(kind: int) -> str:
    """What the compression bits of a sysFlag stand for."""
    return {COMPRESSION_LZ4: "LZ4", COMPRESSION_ZSTD: "ZSTD"}.get(kind, f"kind {kind:#x}")


def inflated(body: bytes, size_max: int) -> bytes:
    """The bytes that zlib made `body` of; no more than one beyond `size_max` is ever made.

    :raises MessageError: it is none of zlib's, or larger.
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
