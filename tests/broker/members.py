"""Members of a group that answer their broker as scripted, and an administrator who asks it."""

from __future__ import annotations

from typing import Final

from roquet.broker.handlers.client_proxy import TIMEOUT_MS
from roquet.protocol.bodies.tables import ConsumerData, Heartbeat, Subscription
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from tests.broker.harness import Client
from tests.broker.served import send, serving
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS: Final = "10.0.0.1"
ASKED = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
)


class Consumer(Client):
    """A member of group `g`; `answer` gives its answers, none where it gives None."""

    def __init__(self, sim: Simulation, node: BrokerNode, address: str = "10.0.0.9") -> None:
        super().__init__(sim, sim.host(address), node.address, dict.fromkeys(ASKED, self._asked))
        self.client_id = f"{address}@1"
        self.asked: list[Command] = []
        self.answers: dict[int, tuple[int, bytes] | None] = {}
        group = ConsumerData("g", subscriptions=(Subscription("T", version=1),))
        body = dump_bytes(Heartbeat(self.client_id, (), (group,)).to_json())
        assert self.call(RequestCode.HEART_BEAT, body).code == 0

    def _asked(self, request: Command, connection: Connection) -> Answer:
        self.asked.append(request)
        answer = self.answers.get(request.code)
        return None if answer is None else request.answer(answer[0], "as scripted", body=answer[1])


class Administrator(Client):
    """Waits longer than a broker does for its clients."""

    def ask_over(self, code: int, language: str = "JAVA", **fields: object) -> Command:
        request = Command(
            code, {name: str(value) for name, value in fields.items()}, language=language
        )
        return self.host.call(lambda: self.channels.call(self.broker, request, 3 * TIMEOUT_MS))


def queue_key(queue_id: int) -> str:
    return dump_bytes({"brokerName": "broker-a", "queueId": queue_id, "topic": "T"}).decode()


def fill(node: BrokerNode, admin: Client, count: int = 4) -> None:
    """So many messages in the first queue of T, a second apart, of which `g` has had all but the
    last.
    """
    for number in range(count):
        assert send(admin, str(number).encode()).code == 0
        admin.sim.run_for(1)
    broker = serving(node)
    for queue_id, offset in (0, count - 1), (1, 0):
        broker.parts.tables.offsets.commit("g", "T", queue_id, offset)


def offsets(answer: Command) -> dict[str, int]:
    assert answer.code == 0, answer.remark
    table: dict[str, int] = load(answer.body)["offsetTable"]
    return table
