"""Delayed messages: how late roquet's broker and Apache's deliver them when 10,000 are due each
second.

python -m bench.delay [--folder FOLDER] [--results FILE] [--rounds N]
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import procfs
from bench.couples import HEAP, queue_ends
from bench.in_turn import Figure, Page, higher, lower, percentiles, run
from bench.options import Side
from bench.programs import RoquetServer, broker_conf, broker_jvm, create_topic, name_server
from roquet.common.runtime import wall_clock_ms
from roquet.protocol.records.message import SCHEDULE_TOPIC
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.interop import wire
from tests.interop.apache import ApacheBroker
from tests.interop.processes import free_port

TOPIC: Final = "Due"
QUEUES: Final = 4
RATE: Final = 10_000
SECONDS: Final = 30
COUNT: Final = RATE * SECONDS
DELAY_S: Final = 10
STEP_S: Final = 0.005
STEP: Final = round(RATE * STEP_S)
BODY: Final = bytes(range(97, 123)) * 5
KEY: Final = "%032X"
DELIVERED_S_MAX: Final = 60.0


def started(stack: ExitStack, side: Side, folder: Path) -> RoquetServer | ApacheBroker:
    """A broker whose first delay level is `DELAY_S`, with the topic."""
    home = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix=f"roquet-delay-{side}-", dir=folder))
    )
    names = stack.enter_context(name_server(home / "namesrv"))
    names.start()
    port = free_port(-2, 1)
    conf = broker_conf(port, names.address, home / "broker" / "store")
    conf |= {"messageDelayLevel": f"{DELAY_S}s 1m 2m"}
    broker: RoquetServer | ApacheBroker
    if side is Side.ROQUET:
        broker = RoquetServer("broker", home / "broker", conf)
    else:
        jvm = broker_jvm(HEAP)
        broker = ApacheBroker(
            names.address, port=port, directory=home / "broker", properties=conf, jvm=jvm
        )
    stack.callback(broker.close)
    broker.start()
    create_topic(broker.address, TOPIC, QUEUES)
    return broker


class Sender(threading.Thread):
    """Sends `RATE` messages a second, spread evenly, whatever the broker does; `refused` are those
    it did not take.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(daemon=True)
        self._link = socket.create_connection(wire.parse_address(broker), timeout=60)
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.refused = 0
        self.why = ""

    def run(self) -> None:
        answers = threading.Thread(target=self._read, daemon=True)
        answers.start()
        requests = [self._template(queue_id) for queue_id in range(QUEUES)]
        begin = time.perf_counter()
        for first in range(0, COUNT, STEP):
            due = begin + first / STEP * STEP_S
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            numbers = range(first, min(first + STEP, COUNT))
            keys = ((KEY % number).encode() for number in numbers)
            frames = (
                key.join(requests[number % QUEUES])
                for number, key in zip(numbers, keys, strict=True)
            )
            self._link.sendall(b"".join(frames))
        answers.join()
        self._link.close()

    def _template(self, queue_id: int) -> list[bytes]:
        """What stands around the key in a request for a queue."""
        key = KEY % 0
        fields = {
            "a": "bench",
            "b": TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "h": "0",
        }
        fields |= {"g": str(wall_clock_ms()), "j": "0", "k": "false", "m": "false"}
        fields["i"] = f"UNIQ_KEY\x01{key}\x02DELAY\x011\x02WAIT\x01true"
        return wire.request(RequestCode.SEND_MESSAGE_V2, fields, BODY).split(key.encode())

    def _read(self) -> None:
        for _ in range(COUNT):
            answer = wire.read_answer(self._link)
            if answer.code != 0:
                self.refused += 1
                self.why = answer.header.get("remark", "")


def lateness_ms(folder: Path) -> list[int]:
    """How late each message was stored in its own queue, ascending, by the broker's own clock; the
    store is closed.
    """
    store = Store(StoreConfig(folder, [folder / "commitlog"], index_enabled=False), wall_clock_ms)
    store.open()
    due: dict[str, int] = {}
    late: list[int] = []
    for _, data in store.log.walk(store.log.start):
        record = decode(data)
        key = record.properties.get("UNIQ_KEY", "")
        if record.topic == SCHEDULE_TOPIC:
            due[key] = record.store_ms + DELAY_S * 1000
        elif record.topic == TOPIC:
            late.append(record.store_ms - due[key])
    store.close()
    return sorted(late)


def delivery(side: Side, folder: Path) -> Iterator[Figure]:
    with ExitStack() as stack:
        broker = started(stack, side, folder)
        sender = Sender(broker.address)
        began = time.perf_counter()
        sender.start()
        sender.join()
        sent_s, wanted = time.perf_counter() - began, COUNT - sender.refused
        if sender.refused:
            print(f"{sender.refused} messages were refused, such as: {sender.why}", flush=True)
        before, cpu_s = queue_ends(broker.address, TOPIC), procfs.cpu_s(broker.pid)
        give_up = time.perf_counter() + DELIVERED_S_MAX
        while (delivered := queue_ends(broker.address, TOPIC)) < wanted:
            if time.perf_counter() > give_up:
                raise TimeoutError(f"{delivered} of {wanted} messages were delivered")
            time.sleep(0.5)
        cpu_s = procfs.cpu_s(broker.pid) - cpu_s
        broker.stop()
        late = lateness_ms(broker.directory / "store")
    assert len(late) == wanted, f"{len(late)} of {wanted} messages were delivered once"
    assert late[0] >= 0, "a message came before its time"
    yield higher("delayed messages taken a second while others were due", wanted / sent_s)
    yield from percentiles("late", late)
    yield lower("late: the greatest, ms", late[-1])
    if wanted - before > RATE:
        yield lower(
            "the broker's CPU while nothing was sent any more, µs/message",
            cpu_s * 1e6 / (wanted - before),
        )


PAGE: Final = Page(
    "bench.delay",
    "Delayed messages: how late roquet's broker and Apache's are",
    (
        f"{RATE:,} messages of {len(BODY)} bytes are sent each second for {SECONDS} s over one connection, each is due"
        f" {DELAY_S} s later: for {SECONDS - DELAY_S} s as many are due as are sent, then for {DELAY_S} s more",
        "late: from the moment when a message is due, as its broker noted when it stored it, until it is stored in its"
        " own queue, both by the broker's clock, from its files; nothing is consumed meanwhile",
        "no message came before its time, and none twice; what is refused (by flow control, while a JVM warms up) is"
        " not taken",
    ),
)

if __name__ == "__main__":
    run(PAGE, (delivery,), lambda folder: folder, Path(__file__).with_name("DELAY.md"), HEAP)
