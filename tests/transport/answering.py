"""Handlers and fast paths of a server, and requests for them."""

from __future__ import annotations

from collections.abc import Iterable

from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command, decode
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer, FastPathMakers, SlowPath
from tests.transport.stub_transport import StubTransport

LEARN, LEARN_OTHER, ASK = 1, 2, 3


class Knowing:
    """A fast path that answers the requests `ASK`, and notes how many frames it got each time."""

    code = ResponseCode.SUCCESS

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.taken: list[int] = []

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        self.taken.append(0)
        answers: list[bytes | None] = []
        for frame in frames:
            self.taken[-1] += 1
            request = decode(frame)
            known = request.answer(self.code, "fast").encode()
            answers.append(known if request.code == ASK else slow_path(frame))
        return [answer for answer in answers if answer is not None]


class Known(Knowing):
    """The first fast path of the server."""


class OtherKnown(Knowing):
    """The second fast path of the server."""

    code = ResponseCode.NO_PERMISSION


def learn(request: Command, connection: Connection) -> Answer:
    kind = Known if request.code == LEARN else OtherKnown
    return request.answer(0, str(connection.fast_paths.get(kind) is not None))


def answer(request: Command, connection: Connection) -> Answer:
    return request.answer(0, "slow", body=request.body)


FAST_PATHS: FastPathMakers[Connection] = {Known: Known, OtherKnown: OtherKnown}


def receive(connection: Connection, codes: Iterable[int], body: bytes = b"") -> None:
    requests = [Command(code, {}, body, number) for number, code in enumerate(codes)]
    connection.data_received(b"".join(request.encode() for request in requests))


def connected(
    fast_paths: FastPathMakers[Connection] = FAST_PATHS, *, is_server: bool = False
) -> tuple[Connection, StubTransport]:
    handlers = {LEARN: learn, LEARN_OTHER: learn, ASK: answer}
    connection = Connection(handlers, is_server=is_server, fast_paths=fast_paths)
    return connection, StubTransport(connection)


def remarks(transport: StubTransport) -> list[str | None]:
    return [decode(frame).remark for frame in transport.take()]
