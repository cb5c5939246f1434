"""Unique keys (UNIQ_KEY): ids that a producer gives its messages, laid out as Apache's are.

A key is, in hex: address, process, salt, milliseconds since the month began (local time), counter.
It has 32 digits with an IPv4 address, 56 with an IPv6 address. Tools derive the time from the key
to find a message, so the layout matters.

See docs/protocol/messages.md#unique-key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, Self

from roquet.client._net.identity import address_bytes
from roquet.common.runtime import Runtime

_DRIFT_MS_MAX: Final = 1_000_000


class UniqueKeys:
    """Makes the unique keys of a producer.

    Invariant: no two keys of this object are equal, unless it makes more than 65,536 in one
    millisecond.

    :param address: the address of this host, 4 or 16 bytes.
    :param now_ms: the wall clock, in ms since 1970.
    """

    def __init__(self, address: bytes, now_ms: Callable[[], int], chance: random.Random) -> None:
        self._prefix = (address + chance.randbytes(6)).hex().upper()
        self._now_ms = now_ms
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0
        self._front_ms = -1
        """The time that `_last_front` belongs to; many keys are made in one millisecond."""
        self._last_front = ""

    @classmethod
    def of_client(cls, client_id: str, runtime: Runtime) -> Self:
        """The keys of a client, with the address that its id names."""
        return cls(address_bytes(client_id, runtime.random), runtime.now_ms, runtime.random)

    def next(self) -> str:
        """The next key."""
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._front()}{counter:04X}"

    def run(self, count: int) -> tuple[str, int]:
        """Reserve the keys of `count` messages, at most 65,536.

        Returns the digits that all keys begin with, and the first key's counter. The counters of
        the others follow; 65,535 is followed by 0.
        """
        first = (self._counter + 1) & 0xFFFF
        self._counter = (self._counter + count) & 0xFFFF
        return self._front(), first

    def _front(self) -> str:
        """The digits of a key of now before its counter."""
        now_ms = self._now_ms()
        if now_ms != self._front_ms:
            if now_ms >= self._month_end_ms:
                self._month_start_ms, self._month_end_ms = month_of(now_ms)
            passed_ms = now_ms - self._month_start_ms
            # The wall clock was set back across the start of the month.
            if -_DRIFT_MS_MAX < passed_ms < 0:
                passed_ms = 0
            self._front_ms = now_ms
            self._last_front = f"{self._prefix}{passed_ms & 0xFFFFFFFF:08X}"
        return self._last_front


def month_of(now_ms: int) -> tuple[int, int]:
    """Start and end of the month of a time (local time), in ms since 1970."""
    year, month = time.localtime(now_ms / 1000)[:2]
    return _midnight_of_first(year, month), _midnight_of_first(year, month + 1)


def _midnight_of_first(year: int, month: int) -> int:
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000
