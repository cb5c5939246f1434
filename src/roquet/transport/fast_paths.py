"""The fast paths of one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

from roquet.transport.handling import FastPath, SlowPath

C = TypeVar("C")
P = TypeVar("P", bound=FastPath)

FastPathMakers: TypeAlias = Mapping[type[FastPath], Callable[[C], FastPath]]
"""Makes the fast paths of a connection, by their types, in the order in which they are tried.

Only the first gets all frames of a read at once; later ones get frames one by one.
"""


class FastPaths(Generic[C]):
    """The fast paths that handlers asked for, in the order of the server that makes them.

    Invariant: `_connection` is None and `made` is empty once the connection ended: fast paths refer
    to it, and such cycles are rarely collected (`common.garbage`).
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
        return self._take_from(0, self.made, frames, slow_path)

    def _take_from(
        self, at: int, paths: tuple[FastPath, ...], frames: Iterable[bytes], slow_path: SlowPath
    ) -> list[bytes]:
        if at + 1 == len(paths):
            return paths[at].take(frames, slow_path)
        return paths[at].take(
            frames,
            lambda frame: b"".join(self._take_from(at + 1, paths, (frame,), slow_path)) or None,
        )

    def ended(self) -> None:
        """Forget the connection, which ended."""
        self._connection = None
        self.made = ()
