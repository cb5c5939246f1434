"""A producer of transactions at a whole broker, and what that broker's queues hold then."""

from __future__ import annotations

from roquet.protocol.bodies.tables import Heartbeat
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import (
    UNIQ_KEY,
    join_properties,
    parse_offset_message_id,
)
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from tests.broker.harness import Client
from tests.broker.served import SEND, serving
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS = "10.0.0.1"
PERIOD_S = 60.0
SMALL_LOG: dict[str, object] = {"mapedFileSizeCommitLog": 65536}


class TransactionProducer(Client):
    """A producer of a group at one broker, that keeps what it is asked."""

    def __init__(
        self, sim: Simulation, node: BrokerNode, group: str = "P", address: str = "10.0.0.9"
    ) -> None:
        handlers: dict[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: self._check}
        super().__init__(sim, sim.host(address), node.address, handlers)
        self.group = group
        self.asked: list[tuple[CheckTransactionHeader, Record]] = []
        self.announce()

    def _check(self, request: Command, connection: Connection) -> None:
        self.asked.append((CheckTransactionHeader.read(request.fields), decode(request.body)))

    def announce(self) -> None:
        body = dump_bytes(Heartbeat(f"{self.host.address}@1", (self.group,), ()).to_json())
        assert self.call(RequestCode.HEART_BEAT, body).code == 0

    def half(
        self, body: bytes = b"body", topic: str = "T", queue_id: int = 1, **more: str
    ) -> StoredHalf:
        pairs = {
            "TRAN_MSG": "true",
            "PGROUP": self.group,
            UNIQ_KEY: f"key of {body[:20].decode()}",
            "WAIT": "true",
            **more,
        }
        fields = {
            **SEND,
            "a": self.group,
            "b": topic,
            "e": queue_id,
            "f": 4,
            "g": self.host.now_ms(),
            "i": join_properties(pairs),
        }
        answer = self.call(RequestCode.SEND_MESSAGE_V2, body, **fields)
        assert answer.code == 0, answer.remark
        assert int(answer.fields["queueId"]) == queue_id, (
            "clients read it as that of the topic they sent to"
        )
        _, _, at = parse_offset_message_id(answer.fields["msgId"])
        return StoredHalf(int(answer.fields["queueOffset"]), at)

    def end(self, half: StoredHalf, kind: int, **more: object) -> Command:
        """By a request that wants an answer, as Go's client does."""
        fields = {
            "producerGroup": self.group,
            "msgId": "m",
            "commitOrRollback": kind,
            **half.fields,
            **more,
        }
        return self.call(RequestCode.END_TRANSACTION, **fields)


class StoredHalf:
    """Where a half message stands."""

    def __init__(self, offset: int, at: int) -> None:
        self.offset, self.at = offset, at

    @property
    def fields(self) -> dict[str, object]:
        return {"tranStateTableOffset": self.offset, "commitLogOffset": self.at}


def queue(node: BrokerNode, topic: str, queue_id: int = 0) -> list[Record]:
    """All that a queue points to."""
    store = serving(node).store
    entries = store.queue(topic, queue_id).entries(0, 1000)
    return [decode(store.log.record_at(at) or b"") for at, *_ in entries]


def bodies(node: BrokerNode, topic: str = "T", queue_id: int = 1) -> list[str]:
    return [record.body.decode() for record in queue(node, topic, queue_id)]


def restart(sim: Simulation, node: BrokerNode, way: str) -> None:
    {"stop": node.stop, "kill": node.host.kill, "crash": node.host.crash}[way]()
    node.start()
    sim.run_until(lambda: node.broker is not None, 30)
    sim.run_for(1)
