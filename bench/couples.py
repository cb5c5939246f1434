"""A master and its slave, of roquet or of Apache's 4.9.7, with the same settings; and what tells
how far each is.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.options import Side
from bench.programs import RoquetServer, broker_conf, broker_jvm, create_topic
from roquet.protocol.remoting.codes import RequestCode
from tests.interop import wire
from tests.interop.apache import ApacheBroker
from tests.interop.processes import Program, free_port, wait_until

HEAP: Final = "1g"
TOPIC: Final = "Lag"


class Couple:
    """A master of a role and its slave; neither runs yet. What they store is below `folder`."""

    def __init__(self, side: Side, folder: Path, names: str, role: str) -> None:
        self.names = names
        self.folder = folder
        self.master_address, self.master = self._broker(side, "master", 0, role)
        self.slave_address, self.slave = self._broker(side, "slave", 1, "SLAVE")

    def _broker(
        self, side: Side, name: str, broker_id: int, role: str
    ) -> tuple[str, RoquetServer | ApacheBroker]:
        home, port = self.folder / name, free_port(-2, 1)
        conf = broker_conf(port, self.names, home / "store") | {
            "brokerId": broker_id,
            "brokerRole": role,
        }
        conf |= {"slaveTimeout": 20_000}
        if side is Side.ROQUET:
            broker = RoquetServer("broker", home, conf)
            return broker.address, broker
        jvm = broker_jvm(HEAP)
        apache = ApacheBroker(
            self.names,
            role=role,
            broker_id=broker_id,
            port=port,
            directory=home,
            properties=conf,
            jvm=jvm,
        )
        return apache.address, apache

    def start(self, *brokers: Program) -> None:
        """Start some, or both; returns when clients find them."""
        for broker in brokers or (self.master, self.slave):
            assert isinstance(broker, RoquetServer | ApacheBroker)
            broker.start()
            address = broker.address
            wait_until(
                partial(wire.has_broker, self.names, address),
                f"{address} to be listed",
            )

    def follow(self) -> None:
        """Returns when the slave has what the master has, some bytes that are sent for it among
        them.
        """
        self.create_topic()
        wait_until(
            lambda: send(self.master_address) == 0,
            "a send that the slave has, where that is asked for",
        )
        wait_until(
            lambda: log_end(self.slave_address) == log_end(self.master_address) > 0,
            "the slave has what the master has",
        )

    def create_topic(self) -> None:
        create_topic(self.master_address, TOPIC, 1)
        wait_until(lambda: wire.has_topic(self.names, TOPIC), f"a route for {TOPIC}")

    def close(self) -> None:
        self.master.close()
        self.slave.close()


def send(address: str) -> int:
    """The code of the answer to one send."""
    fields = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": "1",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "",
    }
    return wire.ask(
        address, RequestCode.SEND_MESSAGE_V2, fields | {"j": "0", "k": "false"}, b"x", timeout_s=30
    ).code


def log_end(address: str) -> int:
    """-1 as long as the broker is not ready to tell."""
    answer = wire.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=30)
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"]) if answer.code == 0 else -1


def queue_ends(address: str, topic: str) -> int:
    """The sum of what all queues of the topic hold."""
    answer = wire.ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}, timeout_s=30)
    return sum(int(match) for match in re.findall(rb'"maxOffset":(\d+)', answer.body))


@contextmanager
def queue_end_asker(address: str) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection and the request for the end of the topic's only queue."""
    with socket.create_connection(wire.parse_address(address), timeout=10) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield link, wire.request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
