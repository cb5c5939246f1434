"""Builds Arrow arrays from buffers, without a Python object per value, and without pandas.

`pyarrow.array`, `pyarrow.scalar` and `to_numpy` import pandas if it is installed, which takes a
second or more in each of Spark's Python processes. So imports and reads build their arrays with
this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
_OFFSET_MAX: Final = 2**31 - 1


def numbers(
    values: npt.NDArray[np.generic], kind: pa.DataType, valid: Bools | None = None
) -> pa.Array:
    """An Arrow array of values with the memory layout of `kind`; null where not `valid`."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))]
    )


def indices(values: Ints, valid: Bools | None = None) -> pa.Array:
    """An Arrow array of indices for `take`."""
    return numbers(values, pa.int64(), valid)


def slices(data: bytes | Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The bytes of `data` from each start to its end, as a binary array.

    The parts must be in the order of `data` and must not overlap. The buffer is then an array of
    part, gap, part, gap, ..., from which Arrow copies every second value.

    :raises OverflowError: `data` has 2 GiB or more, too much for the 32-bit offsets of an array.
    """
    count = len(starts)
    if count == 0:
        return pa.nulls(0, pa.binary())
    _check_countable(len(data))
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    parts_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return parts_and_gaps.take(indices(np.arange(0, 2 * count, 2)))


def binary(values: Sequence[bytes]) -> pa.Array:
    """A binary array of Python bytes.

    :raises OverflowError: they have 2 GiB or more in total, too much for 32-bit offsets.
    """
    edges = np.cumsum([0, *map(len, values)], dtype=np.int64)
    _check_countable(int(edges[-1]))
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _check_countable(size: int) -> None:
    """Check that 32-bit offsets can address `size` bytes.

    Callers build much smaller arrays. Larger offsets would wrap around and select wrong bytes.
    """
    if size > _OFFSET_MAX:
        raise OverflowError(f"{size} bytes are too many for one column of a batch")


def constant(value: bytes) -> pa.Scalar:
    """A binary scalar."""
    return binary([value])[0]


def text(stored: pa.Array) -> pa.Array:
    """A string array from binary. Invalid UTF-8 becomes U+FFFD, instead of failing the read."""
    try:
        return stored.cast(pa.string())
    except pa.ArrowInvalid:
        return words([value.decode("utf-8", "replace") for value in stored.to_pylist()])


def words(values: Sequence[str]) -> pa.Array:
    """A string array of Python strings."""
    return binary([value.encode() for value in values]).cast(pa.string())


def numbers_in(values: pa.Array, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of an Arrow array without nulls, as a view of its memory."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(values.buffers()[1], kind, len(values), values.offset * size)


def true_rows(mask: pa.Array) -> Ints:
    """The indices at which an Arrow mask is true."""
    return numbers_in(pc.indices_nonzero(mask), np.uint64).astype(np.int64)


def bits_in(mask: pa.Array) -> Bools:
    """An Arrow mask as a numpy mask; null becomes False."""
    bits: Bools = np.zeros(len(mask), np.bool_)
    bits[true_rows(mask)] = True
    return bits
