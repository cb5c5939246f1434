"""Whole brokers on simulated hosts, and what the tests that need one ask of it."""

from __future__ import annotations

from typing import Any, Final

from roquet.broker.config.broker import BrokerConfig, read_config
from roquet.broker.server import Broker
from roquet.common.steps import finished
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import Client
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

SEND: Final = {"a": "P", "c": "TBW102", "d": 4, "f": 0, "g": 1, "h": 0, "j": 0, "k": "false"}
SMALL: Final = {
    "storePathRootDir": "/store",
    "mapedFileSizeCommitLog": 4096,
    "mapedFileSizeConsumeQueue": 20 * 10,
    "maxHashSlotNum": 20,
    "maxIndexNum": 40,
    "flushConsumeQueueThoroughInterval": 1000,
}


def config(address: str, **settings: object) -> BrokerConfig:
    """A broker `broker-a` with small files; settings by their names in broker.conf."""
    named = {
        "brokerName": "broker-a",
        "brokerIP1": address,
        "brokerIP2": address,
        **SMALL,
        **settings,
    }
    return read_config([(name, str(value)) for name, value in named.items()], environment={})[0]


def started(sim: Simulation, address: str, **settings: object) -> BrokerNode:
    """A broker that serves."""
    node = BrokerNode(address, sim.host(address), config(address, **settings))
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)
    return node


def serving(node: BrokerNode) -> Broker:
    assert node.broker is not None
    return node.broker


def send(client: Client, body: bytes, topic: str = "T", properties: str = "") -> Command:
    fields: dict[str, Any] = {**SEND, "b": topic, "e": 0, "i": properties}
    return client.call(RequestCode.SEND_MESSAGE_V2, body, **fields)


def arrived(node: BrokerNode, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """What stands in a queue, if it still is in the log."""
    store = serving(node).store
    queue = store.queue(topic, queue_id)
    data = [
        store.log.record_at(at)
        for offset in range(queue.max_offset)
        for at, *_ in queue.entries(offset, 1)
    ]
    return [decode(record, verify=True) for record in data if record is not None]


def bodies(node: BrokerNode, topic: str = "T") -> list[bytes]:
    return [record.body for record in arrived(node, topic)]


async def flush_and_drop(node: BrokerNode) -> None:
    """Delete the first files of the log."""
    store = serving(node).store
    store.make_checkpoint()
    store.log.synced(store.log.end)
    for deletion in finished(store.old_files.forget_oldest(2)).log:
        deletion()
