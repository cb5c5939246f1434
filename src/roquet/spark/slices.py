"""Parts of a buffer as Arrow arrays, without a Python object per part."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SIZE_MAX: Final = 2**31 - 1
"""Arrow's offsets of binary and string columns are 32 bits wide."""


def slices(data: bytes | Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The bytes of `data` from each start to its end, as a binary array.

    The parts must stand in `data` in that order and not overlap: the buffer is then described as a run of values
    part, gap, part, gap, ... and Arrow copies every other one.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    parts_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return parts_and_gaps.take(pa.array(np.arange(0, 2 * count, 2)))


def text(binary: pa.Array) -> pa.Array:
    """Bytes as a string array; bytes that are no UTF-8 become U+FFFD rather than fail a whole read."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in binary.to_pylist()], pa.string())


def gather(data: bytes, dtype: npt.DTypeLike, at: Ints) -> npt.NDArray[np.generic]:
    """The values of one type that start at the given places, aligned or not."""
    kind = np.dtype(dtype)
    if len(at) == 0:
        return np.empty(0, kind)
    raw = np.dtype((np.void, kind.itemsize))
    everywhere = np.ndarray((len(data) - kind.itemsize + 1,), raw, data, strides=(1,))
    return everywhere[at].view(kind)
