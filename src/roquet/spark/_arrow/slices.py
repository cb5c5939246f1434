"""Arrow arrays from buffers: no Python object per value, and no pandas.

`pyarrow.array`, `pyarrow.scalar` and `to_numpy` import pandas if it is installed, a second or more in each of Spark's
Python processes, so that what is made while modules are imported or topics are read is made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
_OFFSET_MAX: Final = 2**31 - 1


def numbers(
    values: npt.NDArray[np.generic], kind: pa.DataType, valid: Bools | None = None
) -> pa.Array:
    """Values that lie in memory as Arrow's `kind` does, null where not `valid`."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))]
    )


def indices(values: Ints, valid: Bools | None = None) -> pa.Array:
    """What `take` takes."""
    return numbers(values, pa.int64(), valid)


def slices(data: bytes | Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The bytes of `data` from each start to its end, as a binary array.

    The parts must stand in `data` in that order and not overlap: the buffer is then described as a run of values
    part, gap, part, gap, ... and Arrow copies every other one.

    :raises OverflowError: `data` has 2 GiB, which an array's offsets cannot count.
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
    """A binary array of bytes that are Python objects already.

    :raises OverflowError: they are 2 GiB together, which its offsets cannot count.
    """
    edges = np.cumsum([0, *map(len, values)], dtype=np.int64)
    _check_countable(int(edges[-1]))
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _check_countable(size: int) -> None:
    """Whoever makes arrays keeps them far smaller; beyond this the numbers would wrap around to wrong bytes."""
    if size > _OFFSET_MAX:
        raise OverflowError(f"{size} bytes are too many for one column of a batch")


def constant(value: bytes) -> pa.Scalar:
    """One binary value for all rows."""
    return binary([value])[0]


def text(stored: pa.Array) -> pa.Array:
    """Bytes as a string array; bytes that are no UTF-8 become U+FFFD rather than fail a whole read."""
    try:
        return stored.cast(pa.string())
    except pa.ArrowInvalid:
        return words([value.decode("utf-8", "replace") for value in stored.to_pylist()])


def words(values: Sequence[str]) -> pa.Array:
    """A string array of Python's own strings."""
    return binary([value.encode() for value in values]).cast(pa.string())
