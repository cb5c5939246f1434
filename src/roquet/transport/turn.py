"""What one connection may have done in one turn of the event loop."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from roquet.transport.peers import Peers

_BYTES: Final = 96 * 1024
"""Request bytes that one connection may have answered per turn of the loop. 64 senders of 2.5 KB
each were a tenth faster with this bound than with one write per read: those that get their answers
first send again while the others' requests are handled. While reads fill its buffer, uvloop reads
from one connection dozens of times before it serves another; after a read of this size it pauses.
"""
_SECONDS: Final = 0.004
"""Seconds that one connection may spend on the slow path per turn: some requests create a file."""
_UNREAD_PARTS: Final = 4
"""Part of a peer's unread bytes that is made before checking whether the peer reads: 1 / this.

One read may bring thousands of small requests for large answers.
"""


class Turn:
    """The frames that are answered in one turn, and what ends it: bytes, time or answers.

    Invariant: each frame that the turn began with is either given out or, once the turn was ended
    before, in `left`.

    :param is_limited: whether bytes and time end it; answers always do.
    """

    __slots__ = ("_frames", "_made", "_peers", "_seconds", "end_s", "left", "size_max")

    def __init__(self, peers: Peers, *, is_limited: bool) -> None:
        self._peers = peers
        self._seconds = _SECONDS if is_limited else inf
        self._frames: Iterator[bytes] = iter(())
        self._made = 0
        """Bytes of answers made so far."""
        self.size_max = _BYTES if is_limited else inf
        """Request bytes that may be answered."""
        self.end_s = inf
        """Loop time at which the turn is over."""
        self.left: list[bytes] = []
        """Frames that were not given out, since the turn was ended before."""

    def count(self, frames: int, size: int) -> int:
        """How many frames of a read of `size` bytes, more than `size_max`, are answered at once.

        Its turns get parts of equal length.
        """
        parts = 1 + size // _BYTES
        return -(-frames // parts)

    def begin(self, frames: list[bytes], now: float) -> Iterator[bytes]:
        """Begin a turn at loop time `now`; returns an iterator that gives out the frames."""
        self._frames = iter(frames)
        self._made = 0
        self.end_s = now + self._seconds
        if self.left:
            self.left = []
        return self._frames

    def end(self) -> None:
        """Give out no more frames."""
        self.left += self._frames

    @property
    def answers_at_once(self) -> int:
        """Bytes of answers after which they are written, to see whether the peer reads them.

        The last answer may exceed it.
        """
        return self._peers.unread_max // _UNREAD_PARTS

    def made(self, size: int) -> None:
        """Count an answer of `size` bytes. Above `answers_at_once` the turn ends."""
        self._made += size
        if self._made >= self.answers_at_once:
            self.end()
