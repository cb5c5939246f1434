"""What admin requests that change something have in common."""

from __future__ import annotations

from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection


def answer_saved(request: Command, connection: Connection, error: OSError | None) -> None:
    """Answer a request whose change is on disk now, or could not be written."""
    if request.is_one_way:
        return
    if error is None:
        answer = request.answer(ResponseCode.SUCCESS)
    else:
        answer = request.answer(ResponseCode.SYSTEM_ERROR, not_saved(error))
    connection.send(answer.encode())


def not_saved(error: OSError) -> str:
    """What the caller is told whose change counts until the broker ends."""
    return f"the change is made but could not be saved: {error}"


def refuse_on_slave(is_slave: bool) -> None:
    """:raises Refused: this is a slave, whose tables are its master's."""
    if is_slave:
        raise Refused(ResponseCode.SYSTEM_ERROR, "this is a slave; ask its master")
