"""What answers the requests of a connection: handlers, and the fast paths before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

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
        `Dispatcher.made`, which may end the iterator `frames` early.
        """
        ...


P = TypeVar("P", bound=FastPath)
FastPathMakers: TypeAlias = Mapping[type[FastPath], Callable[[C], FastPath]]
"""Makes the fast paths of a connection, by their types, in the order in which they are tried.

Only the first gets all frames of a read at once; later ones get frames one by one.
"""


class FastPaths(Generic[C]):
    """The fast paths of one connection that handlers asked for, in the order of their makers.

    Invariant: `_connection` is None and `made` is empty once the connection ended: fast paths refer
    to it, and such cycles are rarely collected (`common.memory`).
    """

    __slots__ = ("_connection", "_makers", "made")

    def __init__(self, connection: C, makers: FastPathMakers[C]) -> None:
        self._connection: C | None = connection
        self._makers = makers
        self.made: tuple[FastPath, ...] = ()

    def get(self, kind: type[P]) -> P | None:
        """The fast path of this type, made when it is asked for first.

        Idle connections thus have none.

        :returns: None if connections of this server have no such fast path.
        """
        for path in self.made:
            if isinstance(path, kind):
                return path
        make = self._makers.get(kind)
        if make is None or self._connection is None:
            return None
        made = make(self._connection)
        assert isinstance(made, kind)
        order = list(self._makers)
        self.made = tuple(sorted((*self.made, made), key=lambda path: order.index(type(path))))
        return made

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        """Answer frames by the first fast path that knows them, or by `slow_path`."""
        first = self.made[0]
        if len(self.made) > 1:  # without the test, 50 ns more per read of those that have one
            for path in self.made[:0:-1]:
                slow_path = partial(_take_one, path, slow_path)
        return first.take(frames, slow_path)

    def ended(self) -> None:
        """Forget the connection, which ended."""
        self._connection = None
        self.made = ()


def _take_one(path: FastPath, slow_path: SlowPath, frame: bytes) -> bytes | None:
    return b"".join(path.take((frame,), slow_path)) or None
