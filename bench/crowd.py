"""What a crowd of idle connections, and one client that floods the broker, cost the others;
Apache's broker in turn.

python -m bench.crowd [--folder FOLDER] [--results FILE] [--rounds N]
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from bench import procfs
from bench.couples import HEAP
from bench.in_turn import Figure, Page, higher, lower, percentiles, run
from bench.options import Side
from bench.programs import RoquetServer, apache_broker, name_server, roquet_broker
from roquet.client.producer import Producer
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import ONE_WAY, Command
from tests.interop import wire
from tests.interop.apache import ApacheBroker
from tests.interop.processes import wait_until

IDLE: Final = 10_000
"""Connections; this process needs a file for each, too."""
SENDS: Final = 2_000
WARMUP: Final = 1_000
TOPIC: Final = "Crowd"
BODY: Final = bytes(128)
FLOOD_BODY: Final = bytes(1024)
FLOOD_BATCH: Final = 200


def crowd(side: Side, folder: Path) -> Iterator[Figure]:
    with ExitStack() as stack:
        names = stack.enter_context(name_server(folder / f"{side}-{time.monotonic_ns()}-names"))
        names.start()
        home = folder / f"{side}-{time.monotonic_ns()}"
        broker: RoquetServer | ApacheBroker = (
            roquet_broker(home, names.address)
            if side is Side.ROQUET
            else apache_broker(home, names.address, HEAP)
        )
        stack.callback(broker.close)
        broker.start()
        wait_until(
            lambda: wire.has_broker(names.address, broker.address), "the broker to be listed"
        )
        asyncio.run(latencies_ms(names.address, WARMUP))
        yield from percentiles(
            "a send, nobody else there", asyncio.run(latencies_ms(names.address, SENDS))
        )
        before = procfs.memory(broker.pid).resident
        links = [
            stack.enter_context(socket.create_connection(wire.parse_address(broker.address)))
            for _ in range(IDLE)
        ]
        for link in links:
            heartbeat(link)
        yield lower(
            "an idle connection, KiB", (procfs.memory(broker.pid).resident - before) / IDLE / 1024
        )
        yield from percentiles(
            f"a send beside {IDLE:,} idle", asyncio.run(latencies_ms(names.address, SENDS))
        )
        with Flood(broker.address) as flood:
            yield from percentiles(
                "a send beside a flood", asyncio.run(latencies_ms(names.address, SENDS))
            )
            yield higher("requests of the flood taken a second", flood.rate)


def heartbeat(link: socket.socket) -> None:
    """Ask something small and wait for the answer: the connection is served."""
    link.sendall(Command(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).encode())
    wire.read_answer(link)


class Flood:
    """One-way sends from one connection, as many as are taken, as long as the broker keeps it
    open.
    """

    def __init__(self, address: str) -> None:
        fields = {
            "a": "flood",
            "b": TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "1",
            "h": "0",
            "i": "",
        }
        request = Command(
            RequestCode.SEND_MESSAGE_V2, fields | {"j": "0", "k": "false"}, FLOOD_BODY, flag=ONE_WAY
        )
        self._batch = request.encode() * FLOOD_BATCH
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._pour)
        self._batches = 0
        self._began_s = time.perf_counter()

    def _pour(self) -> None:
        with socket.create_connection(wire.parse_address(self._address)) as link, suppress(OSError):
            while not self._is_over.is_set():
                link.sendall(self._batch)
                self._batches += 1

    @property
    def rate(self) -> float:
        """Requests a second since the start."""
        return self._batches * FLOOD_BATCH / (time.perf_counter() - self._began_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()


async def latencies_ms(names: str, count: int) -> list[float]:
    times: list[float] = []
    async with Producer(names, "crowd") as producer:
        for _ in range(count):
            begin = time.perf_counter()
            await producer.send(TOPIC, BODY)
            times.append((time.perf_counter() - begin) * 1e3)
    return times


MEASURED: Final[Sequence[Callable[[Side, Path], Iterator[Figure]]]] = (crowd,)
PAGE: Final = Page(
    "bench.crowd",
    "Many connections, and one that asks too much",
    (
        "one roquet client sends 128 bytes at a time and waits for the answer; milliseconds it waits",
        f"idle: {IDLE:,} connections that asked one thing each and stay",
        "flood: one connection writes one-way sends of 1 KiB as fast as they are taken, beside the idle ones; a broker"
        " that ends that connection has no flood any more, which shows in the requests taken",
    ),
)

if __name__ == "__main__":
    run(PAGE, MEASURED, lambda folder: folder, Path(__file__).with_name("CROWD.md"), HEAP)
