"""Answers that admin requests share which change tables."""

from __future__ import annotations

from roquet.broker.config.broker import BrokerConfig
from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection


def answer_saved(request: Command, connection: Connection, error: OSError | None) -> None:
    """Answer a request whose change was saved, or could not be saved because of `error`."""
    if request.is_one_way:
        return
    if error is None:
        answer = request.answer(ResponseCode.SUCCESS)
    else:
        answer = request.answer(ResponseCode.SYSTEM_ERROR, not_saved(error))
    connection.send(answer.encode())


def not_saved(error: OSError) -> str:
    """The remark for a change that could not be saved yet; the broker saves it again and again."""
    return (
        "the change is made, but could not be saved yet, will be retried; it is lost if the broker "
        f"ends before: {error}"
    )


def refuse_on_slave(config: BrokerConfig) -> None:
    """Refuse a change on a slave: a slave copies its tables from its master.

    :raises Refused: this broker is a slave.
    """
    if config.is_slave:
        raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask its master")
