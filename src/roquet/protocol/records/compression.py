"""PURE: compresses bodies, and decompresses them, up to a size.

A producer can store 2 MB that decompress to 2 GB, or bytes of another kind. Both raise
`MessageError`, an error of that message alone. LZ4 and ZSTD need the libraries of
`roquet[compression]`, which are imported with the first body that needs them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Literal, Protocol, TypeAlias

from roquet.common.extras import MissingExtraError, needed_by
from roquet.errors import ConfigError, DamagedBody, MessageError
from roquet.protocol.records.layout import checksum
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_BITS,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

CompressionName: TypeAlias = Literal["zlib", "lz4", "zstd"]

UNCOMPRESSED_MAX: Final = 64 << 20
"""Default limit of a decompressed body, in bytes.

Producers (Apache's by default, too) refuse to send bodies above 4 MiB before compression. This is
16 times as much, and still a size that a process survives.
"""
COMPRESS_FROM_SIZE: Final = 4096
_ZLIB_LEVEL: Final = 5
_PART_SIZE: Final = 64 << 10
"""Bytes that are decompressed first; each part after it is twice as large, so there are few."""
_WINDOW_BITS_MIN: Final = 23
"""A ZSTD frame asks for memory for its window. 8 MiB is what any reader should support."""


class _Decompressor(Protocol):
    """A decompressor of one frame, as both libraries have one."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Library:
    """A library's functions.

    :param decompressor: maximum bytes -> a decompressor.
    :param errors: what they raise for damaged bytes.
    """

    compress: Callable[[bytes], bytes]
    decompressor: Callable[[int], _Decompressor]
    errors: tuple[type[Exception], ...]


@cache
def _lz4() -> _Library:
    import lz4.frame

    return _Library(
        partial(lz4.frame.compress, block_linked=False),  # Java reads no linked blocks
        lambda _: lz4.frame.LZ4FrameDecompressor(),
        (RuntimeError, EOFError),
    )


@cache
def _zstd() -> _Library:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        import backports.zstd as zstd

    def decompressor(size_max: int) -> _Decompressor:
        bits = min(max((size_max - 1).bit_length(), _WINDOW_BITS_MIN), 31)
        made: _Decompressor = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: bits}
        )
        return made

    return _Library(zstd.compress, decompressor, (zstd.ZstdError, EOFError))


_LIBRARIES: Final[Mapping[int, Callable[[], _Library]]] = {
    COMPRESSION_LZ4: _lz4,
    COMPRESSION_ZSTD: _zstd,
}
"""Kind of compression -> its library; zlib is Python's own."""
_BITS: Final[Mapping[str, int]] = {"lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}


def _library(kind: int) -> _Library:
    with needed_by(f"{name_of(kind)} compression"):
        return _LIBRARIES[kind]()


@dataclass(frozen=True, slots=True)
class Compression:
    """How a producer compresses bodies.

    :param compress: a body -> its compressed form.
    :param sys_flag: the sysFlag bits of such a body.
    :param from_size: bodies of at least this many bytes are compressed.
    """

    compress: Callable[[bytes], bytes]
    sys_flag: int
    from_size: int = COMPRESS_FROM_SIZE

    @classmethod
    def of(cls, name: CompressionName | None, from_size: int) -> Compression | None:
        """The compression of that name.

        The bits of zlib stay 0, which all releases read as zlib. Java's client sends 0x300 since
        4.9.4; only newer releases know it (docs/protocol/messages.md#compression).

        :returns: None if bodies are not compressed.
        :raises ConfigError: there is no such compression, or its library is not installed.
        """
        if name is None:
            return None
        if name == "zlib":
            return cls(_deflated, COMPRESSED, from_size)
        if name not in _BITS:
            raise ConfigError(f"compression is {name!r}: give 'zlib', 'lz4', 'zstd' or None")
        kind = _BITS[name]
        try:
            library = _library(kind)
        except MissingExtraError as error:
            raise ConfigError(f"compression is {name!r}: {error}") from error
        return cls(library.compress, COMPRESSED | kind, from_size)

    def apply(self, body: bytes) -> tuple[bytes, int]:
        """Compress a body if that makes it smaller; return it with its sysFlag bits."""
        if len(body) < self.from_size:
            return body, 0
        smaller = self.compress(body)
        return (smaller, self.sys_flag) if len(smaller) < len(body) else (body, 0)


def _deflated(body: bytes) -> bytes:
    return zlib.compress(body, _ZLIB_LEVEL)


ZLIB: Final = Compression(_deflated, COMPRESSED)


def plain_body(
    body: bytes, sys_flag: int, size_max: int = UNCOMPRESSED_MAX, crc: int | None = None
) -> bytes:
    """The body as the producer sent it, decompressed.

    :param size_max: bytes that it may have, if it is compressed.
    :param crc: the stored checksum (`Record.body_crc`). None or 0: it is not compared. Brokers that
        compute no checksums store 0, which is right for only one of 2³¹ bodies.
    :raises DamagedBody: the body does not have that checksum.
    :raises MessageError: the body is damaged or too large, or the library of its compression is not
        installed.
    """
    if crc and checksum(body) != crc:
        raise DamagedBody(
            f"the body, stored in {len(body)} bytes, does not have the checksum stored with it"
        )
    if not body or not sys_flag & COMPRESSED:
        return body  # Apache's clients do not decompress an empty body, whatever its sysFlag says
    kind = sys_flag & COMPRESSION_TYPE_BITS
    if kind in (0, COMPRESSION_ZLIB):
        return inflated(body, size_max)
    if kind not in _LIBRARIES:
        raise MessageError(f"the body is compressed with {name_of(kind)}, which is not known")
    try:
        library = _library(kind)
    except MissingExtraError as error:
        raise MessageError(f"the body cannot be decompressed: {error}") from error
    return _decompressed(body, library, size_max)


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
        raise _cut_short(body)
    return plain


def _decompressed(body: bytes, library: _Library, size_max: int) -> bytes:
    """Decompress one frame. At most `size_max` + 1 bytes are made before it is refused.

    A body has one frame and nothing after it. Producers write no more, and a body of a million
    empty frames would take hours.

    :raises MessageError: `body` is something else, or larger than `size_max` when decompressed.
    """
    frame = library.decompressor(size_max)
    parts: list[bytes] = []
    left = size_max + 1
    part_size = _PART_SIZE
    data = body
    try:
        while not frame.eof:
            part = frame.decompress(data, max_length=min(left, part_size))
            if not part and not frame.eof:
                raise _cut_short(body)
            parts.append(part)
            left -= len(part)
            if left <= 0:
                raise too_large(body, size_max)
            data = b""
            part_size *= 2
    except library.errors as error:
        raise MessageError(f"the compressed body is damaged: {error}") from error
    if frame.unused_data:
        raise MessageError(
            f"the compressed body is damaged: {len(frame.unused_data)} of its {len(body)} bytes "
            "follow its end"
        )
    return b"".join(parts)


def too_large(body: bytes, size_max: int) -> MessageError:
    return MessageError(
        f"the body, stored in {len(body)} bytes, has more than {size_max} when it is decompressed"
    )


def _cut_short(body: bytes) -> MessageError:
    return MessageError(
        f"the compressed body is damaged: it ends after {len(body)} bytes, before its own end"
    )
