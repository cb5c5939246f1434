"""Requests of our own, over plain sockets: the first send to a broker, a backlog, how much of it is
left.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final

from bench.loads import GROUP, TOPIC
from roquet.protocol.records.batch import batch_item
from roquet.protocol.remoting.codes import RequestCode
from tests.interop import wire

BODY: Final = b"x" * 128
BATCH: Final = 256
QUEUES: Final = 1024
IN_FLIGHT: Final = 8
DISPATCH_SECONDS_MAX: Final = 300.0
_POLL_S: Final = 0.002
_REFUSED_MAX: Final = 1000


class FirstSend(threading.Thread):
    """A client that is up before the broker is and sends until one message is acknowledged."""

    def __init__(self, broker: str) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._given_up = threading.Event()
        self._acknowledged_s: float | None = None

    def run(self) -> None:
        fields = {
            "producerGroup": "bench",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "flag": "0",
            "properties": "WAIT\x01true",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        while not self._given_up.is_set():
            try:
                answer = wire.ask(
                    self._broker, RequestCode.SEND_MESSAGE, fields, BODY, timeout_s=wire.PROBE_S_MAX
                )
            except OSError:
                time.sleep(_POLL_S)
                continue
            if answer.code == 0:
                self._acknowledged_s = time.perf_counter()
                return

    def acknowledged_s(self, timeout_s: float = 60) -> float:
        """When, on the clock of `time.perf_counter`."""
        self.join(timeout_s)
        self._given_up.set()
        if self._acknowledged_s is None:
            raise TimeoutError(f"{self._broker} acknowledged nothing in {timeout_s:.0f} s")
        return self._acknowledged_s


def write_backlog(broker: str, count: int) -> None:
    """At least so many messages, in batches over all queues, written and dispatched when this
    returns.
    """
    before = greatest_offsets(broker)
    batches = -(-count // BATCH)
    with socket.create_connection(wire.parse_address(broker), timeout=30) as link:
        _send_all(link, batches)
    deadline = time.monotonic() + DISPATCH_SECONDS_MAX
    while greatest_offsets(broker) < before + batches * BATCH:
        if time.monotonic() > deadline:
            raise TimeoutError("the backlog is not in the consume queues")
        time.sleep(0.5)


def _send_all(link: socket.socket, batches: int) -> None:
    """Several requests are under way; one that is refused, as by a busy broker, is sent again."""
    waiting = _frames()
    acknowledged = sent = refused = 0
    while acknowledged < batches:
        while sent - acknowledged < IN_FLIGHT and sent < batches:
            link.sendall(next(waiting))
            sent += 1
        answer = wire.read_answer(link)
        if answer.code == 0:
            acknowledged += 1
            continue
        refused += 1
        sent -= 1
        if refused > _REFUSED_MAX:
            raise RuntimeError(
                f"the broker refused a batch with {answer.code}: {answer.header.get('remark')}"
            )
        time.sleep(0.01)


def _frames() -> Iterator[bytes]:
    """Requests with a batch each, queue after queue; bodies and unique keys repeat from batch to
    batch.
    """
    body = b"".join(
        batch_item(0, BODY, f"UNIQ_KEY\x01{index:032X}\x02WAIT\x01true".encode())
        for index in range(BATCH)
    )
    born = str(time.time_ns() // 1_000_000)
    fixed = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "f": "0",
        "g": born,
        "h": "0",
        "i": "",
        "j": "0",
    }
    frames = [
        wire.request(
            RequestCode.SEND_BATCH_MESSAGE,
            {**fixed, "e": str(queue), "k": "false", "m": "true"},
            body,
        )
        for queue in range(QUEUES)
    ]
    while True:
        yield from frames


def greatest_offsets(broker: str) -> int:
    """The sum of what all queues of the topic hold."""
    answer = wire.ask(broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC}, timeout_s=30)
    return _sum("maxOffset", answer.body)


def unread(broker: str) -> int:
    """How far the group's stored progress is behind; it is stored every five seconds."""
    answer = wire.ask(
        broker,
        RequestCode.GET_CONSUME_STATS,
        {"consumerGroup": GROUP, "topic": TOPIC},
        timeout_s=30,
    )
    return _sum("brokerOffset", answer.body) - _sum("consumerOffset", answer.body)


def _sum(name: str, body: bytes) -> int:
    """Of one number in a table whose keys are objects, which no JSON parser takes."""
    return sum(int(match) for match in re.findall(rf'"{name}":(\d+)'.encode(), body))
