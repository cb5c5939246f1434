"""One connection by itself; tests/integration has what needs a real one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable

import pytest

from roquet.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.server import Server
from tests.simulation.simulation import Simulation

SERVER, CLIENT, PORT = "10.0.0.1", "10.0.0.2", 7000
LEARN, ASK = 1, 2


class Refusing:
    """A shortcut that was learnt, and that refuses the first request of a read; the others go the general way."""

    def __init__(self, connection: Connection, error: Exception) -> None:
        self._connection = connection
        self._error = error

    def take(self, asked: Iterable[bytes], otherwise: Callable[[bytes], bytes | None]) -> list[bytes]:
        frames = iter(asked)
        answers = [self._connection.failed(next(frames), self._error)]
        return answers + [answer for frame in frames if (answer := otherwise(frame)) is not None]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "No space left on device"), ResponseCode.SYSTEM_ERROR),
        (Refused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
    ],
)
def test_a_shortcut_takes_all_of_a_read_and_answers_what_fails_there(error: Exception, code: ResponseCode) -> None:
    def learn(request: Command, connection: Connection) -> Command:
        connection.shortcuts.append(Refusing(connection, error))
        return request.answer(ResponseCode.SUCCESS)

    async def ask() -> list[int]:
        channels = Channels()
        await channels.call(f"{SERVER}:{PORT}", Command(LEARN), 1000)
        connection = await channels.connection(f"{SERVER}:{PORT}")
        answers = await asyncio.gather(*(connection.call(Command(code), 1000) for code in (ASK, LEARN, ASK)))
        await channels.close()
        return [answer.code for answer in answers]

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({LEARN: learn}).listen("0.0.0.0", PORT))
        unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert sim.host(CLIENT).call(ask) == [code, ResponseCode.SUCCESS, unknown]


def test_a_request_that_cannot_be_encoded_leaves_nothing_that_waits() -> None:
    complaints: list[str] = []

    def refuse(command: Command) -> bytes:
        raise ValueError("no such field")

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: complaints.append(told["message"]))
        connection = Connection({}, encode=refuse)
        await loop.create_connection(lambda: connection, SERVER, PORT)
        for work in (connection.call(Command(ASK), 1000), connection.call_all([Command(ASK)], 1000)):
            with pytest.raises(ValueError, match="no such field"):
                await work
        connection.close()
        await asyncio.sleep(0.1)
        gc.collect()

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({}).listen("0.0.0.0", PORT))
        sim.host(CLIENT).call(ask)
    assert complaints == []
