"""One connection by itself; tests/integration has what needs a real one."""

from __future__ import annotations

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


class Failing:
    """A shortcut that was learnt, and that meets a trouble each time it is taken."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def take(self, frame: bytes) -> bytes | None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "No space left on device"), ResponseCode.SYSTEM_ERROR),
        (Refused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
    ],
)
def test_what_fails_on_a_shortcut_is_answered_like_everything_else(error: Exception, code: ResponseCode) -> None:
    def learn(request: Command, connection: Connection) -> Command:
        connection.shortcut = Failing(error)
        return request.answer(ResponseCode.SUCCESS)

    async def ask() -> list[int]:
        channels = Channels()
        answers = [await channels.call(f"{SERVER}:{PORT}", Command(code), 1000) for code in (LEARN, ASK, ASK)]
        await channels.close()
        return [answer.code for answer in answers]

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({LEARN: learn}).listen("0.0.0.0", PORT))
        assert sim.host(CLIENT).call(ask) == [ResponseCode.SUCCESS, code, code]
