"""A connection has the fast paths that its handlers asked for, in the server's order."""

from __future__ import annotations

from collections.abc import Iterable

from roquet.protocol.remoting.command import decode
from roquet.transport.handling import FastPaths, SlowPath
from tests.transport.answering import (
    ASK,
    LEARN,
    LEARN_OTHER,
    Known,
    OtherKnown,
    connected,
    receive,
    remarks,
)


async def test_a_fast_path_takes_the_rest_of_the_read_in_which_it_was_made() -> None:
    connection, transport = connected()
    receive(connection, [LEARN, *[ASK] * 17, LEARN])
    assert remarks(transport) == ["True", *["slow"] * 15, "fast", "fast", "True"]
    known = connection.fast_paths.get(Known)
    assert known is not None
    assert known.taken == [3], "it was made once, and got the frames at once"


async def test_fast_paths_are_tried_in_the_order_of_the_server() -> None:
    connection, transport = connected()
    receive(connection, [LEARN_OTHER])
    receive(connection, [ASK])
    receive(connection, [LEARN])
    receive(connection, [ASK])
    codes = [decode(frame).code for frame in transport.take()]
    assert codes == [0, OtherKnown.code, 0, Known.code]


async def test_only_frames_that_one_fast_path_does_not_know_come_to_the_next() -> None:
    connection, _ = connected()
    receive(connection, [LEARN, LEARN_OTHER])
    receive(connection, [ASK, ASK, 99])
    known = connection.fast_paths.get(Known)
    other = connection.fast_paths.get(OtherKnown)
    assert known is not None
    assert other is not None
    assert (known.taken, other.taken) == ([3], [1])


async def test_a_server_without_fast_paths_gives_none() -> None:
    connection, transport = connected({})
    receive(connection, [LEARN, *[ASK] * 17])
    assert remarks(transport) == ["False", *["slow"] * 17]


async def test_a_connection_that_has_ended_gives_none() -> None:
    connection, transport = connected()
    transport.lose()
    assert connection.fast_paths.get(Known) is None


class Marking:
    """A fast path that knows no frame: it adds its name to each."""

    def __init__(self, connection: object) -> None:
        pass

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        name = type(self).__name__.encode()
        return [answer for frame in frames if (answer := slow_path(frame + name)) is not None]


class A(Marking):
    pass


class B(Marking):
    pass


class C(Marking):
    pass


def test_three_fast_paths_are_tried_in_order_before_the_slow_path() -> None:
    paths = FastPaths[object]("a connection", {A: A, B: B, C: C})
    for kind in (C, A, B):
        paths.get(kind)
    assert paths.take([b"1", b"2"], lambda frame: frame) == [b"1ABC", b"2ABC"]
    assert paths.take([b"1"], lambda frame: None) == []
