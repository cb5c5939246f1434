"""Bodies are decompressed as far as they may be, in no more memory than that."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import ConfigError, DamagedBody, MessageError
from roquet.protocol.records.compression import (
    UNCOMPRESSED_MAX,
    Compression,
    CompressionName,
    inflated,
    plain_body,
)
from roquet.protocol.records.layout import checksum

MIB = 1 << 20


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_compressed_body_is_decompressed(sys_flag: int) -> None:
    assert plain_body(zlib.compress(b"hello"), sys_flag) == b"hello"
    assert plain_body(b"as it is", sys_flag & ~1) == b"as it is"


def test_a_body_is_compared_with_its_checksum_where_one_is_stored() -> None:
    assert plain_body(b"hello", 0, crc=checksum(b"hello")) == b"hello"
    assert plain_body(b"", 0, crc=checksum(b"")) == b""
    assert plain_body(b"hello", 0, crc=0) == b"hello", "a broker that makes no checksums stores 0"
    with pytest.raises(DamagedBody):
        plain_body(b"hello", 0, crc=checksum(b"hellp"))


@pytest.mark.parametrize(("sys_flag", "why"), [(0x1, "damaged"), (0x701, "0x700, which is not")])
def test_a_body_that_cannot_be_decompressed_is_not_passed_off_as_one_that_can(
    sys_flag: int, why: str
) -> None:
    with pytest.raises(MessageError, match=why):
        plain_body(b"junk", sys_flag)


@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0x301, 0x701])
def test_an_empty_body_is_not_decompressed(sys_flag: int) -> None:
    """As in Apache's clients."""
    assert plain_body(b"", sys_flag, crc=checksum(b"")) == b""


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_as_many_bytes_come_as_may_and_all_or_none(body: bytes, size_max: int) -> None:
    stored = zlib.compress(body)
    if len(body) <= size_max:
        assert inflated(stored, size_max) == body
    else:
        with pytest.raises(
            MessageError, match=f"stored in {len(stored)} bytes, has more than {size_max} when"
        ):
            inflated(stored, size_max)


@given(st.binary(max_size=300), st.data())
def test_a_body_that_ends_too_early_is_damaged(body: bytes, data: st.DataObject) -> None:
    stored = zlib.compress(body)
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(MessageError, match="the compressed body is damaged"):
        inflated(stored[:cut], 1000)


def test_a_bomb_takes_no_more_memory_than_a_body_may() -> None:
    bomb = zlib.compress(bytes(UNCOMPRESSED_MAX + MIB))
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match=f"has more than {MIB} when it is decompressed"):
            inflated(bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    with pytest.raises(MessageError, match=f"has more than {UNCOMPRESSED_MAX} when"):
        plain_body(bomb, 1)


# LZ4 and ZSTD


@pytest.fixture(params=["lz4", "zstd"])
def kind(request: pytest.FixtureRequest) -> CompressionName:
    """A kind whose library is installed."""
    if request.param == "lz4":
        pytest.importorskip("lz4.frame")
    elif sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    name: CompressionName = request.param
    return name


def packed(kind: CompressionName, body: bytes) -> tuple[bytes, int]:
    """A body as a producer stores it, small or not, and its sysFlag."""
    compression = Compression.of(kind, 0)
    assert compression is not None
    return compression.compress(body), compression.sys_flag


BITS = {"zlib": 0x1, "lz4": 0x101, "zstd": 0x201}
"""Kind -> sysFlag."""
MAGIC = {"lz4": "04224d18", "zstd": "28b52ffd"}


def test_a_body_has_the_bits_and_the_format_that_apache_s_clients_read(
    kind: CompressionName,
) -> None:
    stored, sys_flag = packed(kind, b"hello" * 100)
    assert sys_flag == BITS[kind]
    assert stored[:4].hex() == MAGIC[kind]
    if kind == "lz4":
        assert stored[4] & 0x20, "the blocks are independent: Java's client reads no others"


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_every_kind_gives_all_bytes_or_none(body: bytes, size_max: int) -> None:
    for kind in kinds():
        stored, sys_flag = packed(kind, body)
        if len(body) <= size_max:
            assert plain_body(stored, sys_flag, size_max) == body
        else:
            with pytest.raises(MessageError, match=f"has more than {size_max} when"):
                plain_body(stored, sys_flag, size_max)


@given(st.binary(max_size=300), st.data())
def test_a_frame_that_ends_too_early_is_damaged(body: bytes, data: st.DataObject) -> None:
    for kind in kinds():
        stored, sys_flag = packed(kind, body)
        cut = stored[: data.draw(st.integers(1, len(stored) - 1))]
        with pytest.raises(MessageError, match="the compressed body is damaged"):
            plain_body(cut, sys_flag, 1000)


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_decompressed_or_refused(stored: bytes) -> None:
    for kind in kinds():
        try:
            assert len(plain_body(stored, BITS[kind], 1000)) <= 1000
        except MessageError as error:
            assert "damaged" in str(error)  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 3 << 20, 16 << 20])
def test_a_body_of_many_parts_comes_whole(kind: CompressionName, size: int) -> None:
    body = os.urandom(1 << 10) * (size >> 10) + b"x" * (size & 1023)
    stored, sys_flag = packed(kind, body)
    assert plain_body(stored, sys_flag) == body
    assert plain_body(stored, sys_flag, size) == body
    with pytest.raises(MessageError, match=f"has more than {size - 1} when"):
        plain_body(stored, sys_flag, size - 1)


@pytest.mark.parametrize("tail", [b"x", bytes(100), None], ids=["byte", "zeros", "frame"])
def test_what_follows_the_frame_is_refused(kind: CompressionName, tail: bytes | None) -> None:
    stored, sys_flag = packed(kind, b"hello")
    with pytest.raises(MessageError, match=r"damaged: \d+ of its \d+ bytes follow its end"):
        plain_body(stored + (stored if tail is None else tail), sys_flag)


def test_a_frame_within_a_frame_is_the_body(kind: CompressionName) -> None:
    inner, sys_flag = packed(kind, bytes(10 * MIB))
    outer, _ = packed(kind, inner)
    assert plain_body(outer, sys_flag, MIB) == inner


def test_a_bomb_of_any_kind_takes_no_more_memory_than_a_body_may(kind: CompressionName) -> None:
    bomb, sys_flag = packed(kind, bytes(UNCOMPRESSED_MAX + MIB))
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match=f"has more than {MIB} when it is decompressed"):
            plain_body(bomb, sys_flag, MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    with pytest.raises(MessageError, match=f"has more than {UNCOMPRESSED_MAX} when"):
        plain_body(bomb, sys_flag)


def test_a_zstd_frame_may_not_ask_for_a_larger_window_than_the_body_may_have() -> None:
    if sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    frame = bytes.fromhex("28b52ffd00") + bytes([(31 - 10) << 3]) + bytes.fromhex("010000")
    small = bytes.fromhex("28b52ffd00") + bytes([(23 - 10) << 3]) + bytes.fromhex("010000")
    with pytest.raises(MessageError, match="the compressed body is damaged"):
        plain_body(frame, BITS["zstd"])
    assert plain_body(small, BITS["zstd"], 5) == b""


def kinds() -> list[CompressionName]:
    """The kinds that can be tested here."""
    found: list[CompressionName] = ["zlib"]
    names: tuple[CompressionName, ...] = ("lz4", "zstd")
    for name in names:
        try:
            Compression.of(name, 0)
        except ConfigError:
            continue
        found.append(name)
    return found


def test_a_body_is_compressed_from_a_size_on_if_that_makes_it_smaller() -> None:
    compression = Compression.of("zlib", 100)
    assert compression is not None
    assert compression.apply(bytes(99)) == (bytes(99), 0)
    assert compression.apply(bytes(100)) == (zlib.compress(bytes(100), 5), 0x1)
    incompressible = os.urandom(200)
    assert compression.apply(incompressible) == (incompressible, 0)
    assert Compression.of(None, 100) is None


@pytest.mark.parametrize("name", ["ZLIB", "gzip", "", 5])
def test_another_compression_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"compression is .*: give 'zlib', 'lz4', 'zstd' or None"):
        Compression.of(name, 0)


MISSING = """
import sys
sys.modules.update({"lz4": None, "backports": None})
from roquet.errors import ConfigError, MessageError
from roquet.protocol.records.compression import Compression, plain_body
assert plain_body(b"plain", 0x100) == b"plain"
for name, sys_flag in (("lz4", 0x101), ("zstd", 0x201)):
    for use in (lambda: Compression.of(name, 0), lambda: plain_body(b"frame", sys_flag)):
        try:
            use()
        except (ConfigError, MessageError) as error:
            print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python itself has ZSTD from 3.14 on")
def test_without_the_libraries_the_error_names_the_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, check=True
    )
    lz4, zstd = (
        f"{name} compression needs {package}: pip install 'roquet[compression]'"
        for name, package in (("LZ4", "lz4"), ("ZSTD", "backports"))
    )
    assert done.stdout.splitlines() == [
        f"ConfigError compression is 'lz4': {lz4}",
        f"MessageError the body cannot be decompressed: {lz4}",
        f"ConfigError compression is 'zstd': {zstd}",
        f"MessageError the body cannot be decompressed: {zstd}",
    ]
