"""numpy helpers: type names, columns read from and written to bytes, Java hashes of rows."""

from __future__ import annotations

from functools import lru_cache
from typing import overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
ShortInts = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


@overload
def gather(data: bytes, dtype: np.dtype[np.void], at: Ints) -> npt.NDArray[np.void]: ...
@overload
def gather(data: bytes, dtype: npt.DTypeLike, at: Ints) -> npt.NDArray[np.generic]: ...
def gather(data: bytes, dtype: npt.DTypeLike, at: Ints) -> npt.NDArray[np.generic]:
    """Read the values of type `dtype` at byte indices `at`, which need not be aligned."""
    kind = np.dtype(dtype)
    if len(at) == 0:
        return np.empty(0, kind)
    raw = np.dtype((np.void, kind.itemsize))
    everywhere = np.ndarray((len(data) - kind.itemsize + 1,), raw, data, strides=(1,))
    return everywhere[at].view(kind)


def scatter(data: bytearray, dtype: npt.DTypeLike, at: Ints, values: npt.ArrayLike) -> None:
    """Write numbers of type `dtype` at byte indices `at`, which need not be aligned."""
    kind = np.dtype(dtype)
    if len(at):
        raw = np.dtype((np.void, kind.itemsize))
        everywhere = np.ndarray((len(data) - kind.itemsize + 1,), raw, data, strides=(1,))
        everywhere[at] = np.asarray(values).astype(kind).view(raw)


def byte_rows(data: bytes, at: Ints, size: int) -> Bytes:
    """The `size` bytes from each byte index on, one row each."""
    if not size:
        return np.empty((len(at), 0), np.uint8)
    return gather(data, f"V{size}", at).view(np.uint8).reshape(len(at), size)


def count_leading_true(values: Bools) -> int:
    """The number of True values before the first False."""
    return len(values) if values.all() else int(values.argmin())


def java_hashes(letters: Bytes, before: int = 0) -> Ints:
    """`message.java_hash` of each row of ASCII letters, after a prefix with the hash `before`."""
    powers = _powers(letters.shape[1])
    first = np.uint32(int(powers[0]) * before & 0xFFFFFFFF)
    hashes: npt.NDArray[np.uint32] = letters.astype(np.uint32) @ powers[1:] + first
    return hashes.view(np.int32).astype(np.int64)


@lru_cache(4096)
def _powers(size: int) -> npt.NDArray[np.uint32]:
    """31 to the power of size, size - 1, ... 0, modulo 2**32."""
    return np.array([pow(31, size - n, 1 << 32) for n in range(size + 1)], np.uint32)
