"""An honest client beside the hostile ones: what it was promised, and how long it waited for
answers.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from tests.interop import wire
from tests.interop.stored import Queue, records, served

SEND_OK: Final = 0
GET_MAX_OFFSET: Final = 30
QUEUES: Final = 4
TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.01


@dataclass(slots=True)
class Witness:
    """Sends to its own topic, and asks a question that touches no drive, until its `with` block
    ends.

    Invariant: `acknowledged` are the bodies of messages answered with SEND_OK, by queue id and queue
    offset.
    """

    address: str
    topic: str
    acknowledged: dict[tuple[int, int], bytes]
    waited_s: list[float] = field(default_factory=list)
    """Of each question in this round."""
    unanswered: int = 0
    """Questions that nobody answered within `TIMEOUT_S` although the connection stood."""
    _ends: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _sent: int = 0

    def __enter__(self) -> Self:
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._send_on, self._ask_on)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _send_on(self) -> None:
        while not self._ends.is_set():
            try:
                with self._connected() as link:
                    while not self._ends.is_set():
                        self._send(link)
            except OSError:
                self._ends.wait(PAUSE_S)

    def _send(self, link: socket.socket) -> None:
        queue_id = self._sent % QUEUES
        body = f"{self.topic} {len(self.acknowledged)} {self._sent} {time.time_ns()}".encode()
        self._sent += 1
        link.sendall(wire.request(wire.SEND_MESSAGE, wire.send_fields(self.topic, queue_id), body))
        answer = wire.read_answer(link)
        if answer.code == SEND_OK:
            place = queue_id, int(fields(answer)["queueOffset"])
            assert place not in self.acknowledged, f"two messages were acknowledged at {place}"
            self.acknowledged[place] = body

    def _ask_on(self) -> None:
        question = wire.request(GET_MAX_OFFSET, {"topic": self.topic, "queueId": "0"})
        while not self._ends.is_set():
            try:
                with self._connected() as link:
                    while not self._ends.wait(PAUSE_S):
                        began = time.monotonic()
                        link.sendall(question)
                        assert wire.read_answer(link).code == 0
                        self.waited_s.append(time.monotonic() - began)
            except TimeoutError:
                self.unanswered += 1
            except OSError:
                self._ends.wait(PAUSE_S)

    def _connected(self) -> socket.socket:
        return socket.create_connection(wire.parse_address(self.address), timeout=TIMEOUT_S)


def fields(answer: wire.Answer) -> Mapping[str, str]:
    found = answer.header["extFields"]
    assert isinstance(found, dict)
    return found


def missing(
    address: str, topic: str, acknowledged: Mapping[tuple[int, int], bytes]
) -> list[tuple[int, int]]:
    """Places of acknowledged messages at which this broker gives another one, or none."""
    given: dict[Queue, dict[int, bytes]] = {
        (topic, queue_id): served(address, (topic, queue_id)) for queue_id in range(QUEUES)
    }
    wrong = []
    for (queue_id, offset), body in acknowledged.items():
        record = given[topic, queue_id].get(offset)
        if record is None or records(record)[0].body != body:
            wrong.append((queue_id, offset))
    return wrong
