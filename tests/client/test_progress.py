"""What a group has done comes to the brokers as it is when it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from roquet.client.progress import Progress
from roquet.client.routes import BrokerAddress
from roquet.client.session import Session
from roquet.protocol.command import Command
from roquet.protocol.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
MASTER = BrokerAddress(0, "10.0.1.1:10911")
SLAVE = BrokerAddress(1, "10.0.1.2:10911")


class SlowSession:
    """The master does not answer; until that is clear, pulls have told the slave that the group is further."""

    def __init__(self) -> None:
        self.progress = 5
        self.took: list[int] = []

    async def call_broker(self, _: MessageQueue, request: Callable[[BrokerAddress], Command], *__: Any) -> Any:
        request(MASTER)
        self.progress = 11
        command = request(SLAVE)
        self.took.append(int(command.fields["commitOffset"]))
        return SLAVE, command.answer(0)


async def test_while_one_broker_does_not_answer_the_next_is_not_set_back() -> None:
    """Found by the simulation: a group that was at 11 went back to 5."""
    session = SlowSession()
    progress = Progress(cast(Session, session), "G")
    await progress.store(QUEUE, lambda: session.progress)
    assert session.took == [11]
    session.progress = 10
    await progress.store(QUEUE, lambda: session.progress)
    assert session.took == [11], "what was sent is known to be stored"
