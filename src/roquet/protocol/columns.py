"""Names for numpy's types, and columns out of bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


def gather(data: bytes, dtype: npt.DTypeLike, at: Ints) -> npt.NDArray[np.generic]:
    """The values of one type that start at the given places, aligned or not."""
    kind = np.dtype(dtype)
    if len(at) == 0:
        return np.empty(0, kind)
    raw = np.dtype((np.void, kind.itemsize))
    everywhere = np.ndarray((len(data) - kind.itemsize + 1,), raw, data, strides=(1,))
    return everywhere[at].view(kind)


def byte_rows(data: bytes, at: Ints, size: int) -> Bytes:
    """So many bytes from each place, as rows."""
    if not size:
        return np.empty((len(at), 0), np.uint8)
    return gather(data, f"V{size}", at).view(np.uint8).reshape(len(at), size)
