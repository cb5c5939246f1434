"""A dict of bounded size, for what peers could make grow."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict that makes room for a new key by removing its oldest ones.

    It is for caches where the call of an `lru_cache` costs too much: a hit is a plain `get`. The
    oldest eighth goes at once, as finding the first key of a dict takes the longer, the more keys
    were removed before it.

    Invariant: it has at most `size_max` keys, if only `self[key] = value` adds them.
    """

    __slots__ = ("_size_max",)

    def __init__(self, size_max: int) -> None:
        super().__init__()
        self._size_max = size_max

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._size_max and key not in self:
            for oldest in list(islice(self, self._size_max // 8 + 1)):
                del self[oldest]
        super().__setitem__(key, value)
