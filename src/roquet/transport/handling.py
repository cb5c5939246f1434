"""The types of what answers requests: handlers, and the fast paths before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias, TypeVar

from roquet.protocol.remoting.command import Command

C = TypeVar("C")
"""The connection of a request, as a handler sees it."""
Answer: TypeAlias = Command | bytes | None
"""A handler's result: a response, an encoded response, or None if it answers later or never."""
HandlerFor: TypeAlias = Callable[[Command, C], Answer]
"""Answers a request. An error that it raises becomes the response (`roquet.transport.failures`)."""
SlowPath: TypeAlias = Callable[[bytes], bytes | None]
"""Returns the encoded answer to a frame, or None if the answer comes later or never."""


class FastPath(Protocol):
    """Answers the frequent requests of one connection without decoding them."""

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        """Return the encoded answers to frames of one read, in order.

        A frame that matches no template goes to `slow_path`, in its place in the order. Errors
        are turned into answers (`Connection.failure`). Large answers are reported to
        `Turn.made`, which may end the iterator `frames` early.
        """
        ...
