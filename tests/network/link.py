"""What a wire does to the packets of one direction: delay, loss, a rate with a bounded queue, a
cut.

PURE: time is an argument, chance a seed. `namespaces.py` carries the packets.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one direction. `queue_size_max`: so many bytes may wait for a slow link, packets beyond
    them are lost.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: float | None = None
    queue_size_max: int = 128 * 1024


GOOD = Quality()
CUT = Quality(loss=1.0)


class Direction:
    """The packets on their way from one host to another.

    Invariant: they arrive in the order in which they left; of a cut direction nothing arrives, and
    nothing is on its way.
    """

    def __init__(self, seed: str) -> None:
        self._quality = GOOD
        self._chance = random.Random(seed)
        self._on_the_way: deque[tuple[float, bytes]] = deque()
        self._free_s = 0.0
        """When the link has sent what it was given so far."""

    def become(self, quality: Quality) -> None:
        self._quality = quality
        if quality == CUT:
            self._on_the_way.clear()

    def take(self, packet: bytes, now_s: float) -> None:
        """A packet leaves; it may get lost."""
        quality = self._quality
        if self._chance.random() < quality.loss:
            return
        start_s = now_s
        if quality.bytes_per_s is not None:
            start_s = max(now_s, self._free_s)
            if (start_s - now_s) * quality.bytes_per_s + len(packet) > quality.queue_size_max:
                return
            start_s = self._free_s = start_s + len(packet) / quality.bytes_per_s
        due_s = start_s + quality.delay_s
        if self._on_the_way:
            due_s = max(due_s, self._on_the_way[-1][0])
        self._on_the_way.append((due_s, packet))

    @property
    def due_s(self) -> float | None:
        """When the next packet arrives, None while none is on its way."""
        return self._on_the_way[0][0] if self._on_the_way else None

    def arrived(self, now_s: float) -> list[bytes]:
        packets: list[bytes] = []
        while self._on_the_way and self._on_the_way[0][0] <= now_s:
            packets.append(self._on_the_way.popleft()[1])
        return packets
