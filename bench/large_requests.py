"""What the largest requests cost a broker: how long each holds the loop, and how much memory it
takes for its size.

python -m bench.large_requests [--results FILE]

The broker runs in this process, its client in another. Held is the longest turn of the broker's
loop until the answer is there, in CPU time of its thread, of five times. The peak of memory is that
of everything that Python and numpy allocated in the broker meanwhile, the request and its answer
included.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import uvloop

from bench import in_process, machine
from bench.in_process import TIMEOUT_MS, Clients, broker_in, serving
from bench.loop_delay import TIMES, Probe, in_bold
from roquet.protocol.bodies.tables import (
    ConsumerData,
    GroupConfig,
    Heartbeat,
    QueueLocks,
    Subscription,
)
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection

BODY_MAX: Final = 4 * 1024 * 1024
STORED_MAX: Final = BODY_MAX + 64 * 1024
"""Of the records of a batch."""
RECORD: Final = 91 + 1 + len("CLUSTER\x01DefaultCluster")
"""Bytes that a record has beside body and properties, in topic T; an element of a batch has 22."""
SEND: Final = {
    "a": "P",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "j": "0",
    "k": "false",
}


class Row(NamedTuple):
    name: str
    size: int
    code: int
    held_ms: float
    worst_ms: float
    peak: int


def single(body: bytes, properties: str = "") -> Command:
    return Command(RequestCode.SEND_MESSAGE_V2, {**SEND, "i": properties}, body)


def batch(items: Sequence[bytes], properties: str = "") -> Command:
    return Command(
        RequestCode.SEND_BATCH_MESSAGE, {**SEND, "i": properties, "m": "true"}, b"".join(items)
    )


def filled(
    make: Iterator[bytes], *, stored_max: int = STORED_MAX, body_max: int = BODY_MAX
) -> list[bytes]:
    """As many elements as a batch takes."""
    items: list[bytes] = []
    size = stored = 0
    for item in make:
        size, stored = size + len(item), stored + len(item) - 22 + RECORD + 1
        if stored > stored_max or size > body_max:
            return items
        items.append(item)
    return items


def alike() -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        yield batch_item(0, b"0123456789", b"UNIQ_KEY\x01%032X" % number)


def tiny() -> Iterator[bytes]:
    while True:
        yield batch_item(0, b"x", b"")


def various() -> Iterator[bytes]:
    chance = random.Random(1)
    while True:
        properties = b"".join(
            b"p%d\x01%s\x02" % (n, b"v" * chance.randrange(1, 20))
            for n in range(chance.randrange(4))
        )
        keys = b"TAGS\x01t%d\x02UNIQ_KEY\x01%032X\x02" % (
            chance.randrange(50),
            chance.getrandbits(100),
        )
        yield batch_item(
            chance.randrange(9), chance.randbytes(chance.randrange(1, 60)), properties + keys
        )


def keyed(count: int, size: int) -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        yield batch_item(
            0,
            b"x",
            b"KEYS\x01"
            + b" ".join(b"%0*d" % (size, (number + n) % 10**size) for n in range(count)),
        )


def locks(count: int) -> bytes:
    return dump_bytes(
        QueueLocks(
            "g", "c", frozenset(MessageQueue("T", "b", number) for number in range(count))
        ).to_json()
    )


def requests() -> dict[str, Command]:
    """The largest of each kind that has a body, and what is refused for its size."""
    code = RequestCode
    beat = Heartbeat(
        "c",
        (),
        (ConsumerData("g", subscriptions=tuple(Subscription(f"T{n}") for n in range(1900))),),
    )
    many = {"stored_max": 1 << 30}
    return {
        "SEND_MESSAGE_V2, 4 MiB": single(bytes(BODY_MAX)),
        "SEND_MESSAGE_V2, 16,000 keys": single(b"x", "KEYS\x01" + " ".join("k" for _ in range(16_000))),
        "SEND_REPLY_MESSAGE_V2, 4 MiB": Command(code.SEND_REPLY_MESSAGE_V2, {**SEND, "i": ""}, bytes(BODY_MAX)),
        "batch, alike, a unique key each": batch(filled(alike())),
        "batch, one byte each": batch(filled(tiny())),
        "batch, various sizes, flags and properties": batch(filled(various())),
        "batch, 100 keys each": batch(filled(keyed(100, 1))),
        "batch, 16,000 keys each": batch(filled(keyed(16_000, 1))),
        "batch, 32 KB of properties for all": batch(filled(tiny(), stored_max=10_000), "p\x01" + "v" * 32_000),
        "batch of 4 MiB, one byte each": batch(filled(tiny(), **many)),
        "batch of 4 MiB, various": batch(filled(various(), **many)),
        "batch of 4 MiB, 100 keys each": batch(filled(keyed(100, 1), **many)),
        "batch of 4 MiB, 32 KB of properties for all": batch(filled(tiny(), **many), "p\x01" + "v" * 32_000),
        "HEART_BEAT, 1,900 subscriptions": Command(code.HEART_BEAT, {}, dump_bytes(beat.to_json())),
        "LOCK_BATCH_MQ, 9,000 queues": Command(code.LOCK_BATCH_MQ, {}, locks(9000)),
        "UNLOCK_BATCH_MQ, 9,000 queues": Command(code.UNLOCK_BATCH_MQ, {}, locks(9000)),
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": Command(
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, dump_bytes({**GroupConfig("g").to_json(), "a": [0] * 250_000})
        ),
        "HEART_BEAT of 8 MiB": Command(code.HEART_BEAT, {}, b"[" + b"0," * (4 << 20) + b"0]"),
        "UPDATE_BROKER_CONFIG, 8 MiB": Command(code.UPDATE_BROKER_CONFIG, {}, b"a=1\n" * (2 << 20)),
        "any, a header of 23,000 fields": Command(
            code.GET_BROKER_RUNTIME_INFO, {f"{n:x}": "" for n in range(23_000)}
        ),
    }  # fmt: skip


class Served:
    """A broker with one topic, and a client."""

    def __init__(self, folder: Path) -> None:
        index = {"maxIndexNum": "4000000", "maxHashSlotNum": "1000000"}
        self.broker = broker_in(folder, mapedFileSizeCommitLog=str(1 << 30), **index)
        self.clients = Clients()
        self.address = ""

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self.broker.start()}"
        await self.clients.call(self.address, single(b"first"))

    async def held_ms(self, request: Command) -> float:
        await self.clients.do(get_ready, self.address, request)
        probe = Probe()
        task = asyncio.create_task(probe.run())
        await asyncio.sleep(0.02)
        probe.longest_s = 0.0
        await self.clients.do(answered)
        await asyncio.sleep(
            0.02
        )  # what is done for the turn, such as chaining keys, comes behind the answer
        task.cancel()
        return probe.longest_s * 1000

    async def peak(self, request: Command) -> int:
        """Bytes beyond what was there before the request was sent."""
        await self.clients.do(get_ready, self.address, request)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await self.clients.do(answered)
            await asyncio.sleep(0.02)
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    async def measured(self, name: str, request: Command) -> Row:
        held = []
        for _ in range(TIMES):
            held.append(await self.held_ms(request))
            await asyncio.sleep(0.3)
        await asyncio.sleep(1)  # so that no checkpoint comes between
        peak = await self.peak(request)
        size = await self.clients.do(get_ready, self.address, request)
        return Row(name, size, await self.clients.do(answered), median(held), max(held), peak)

    async def stop(self) -> None:
        self.clients.stop()
        await self.broker.kill()


_ready: tuple[Connection, Command]


def get_ready(address: str, request: Command) -> int:
    """A request is made; how many bytes it has as it goes out. This and the next are run by the
    clients' process.
    """
    global _ready
    connection = in_process.connections.wait(in_process.connections[0].connection(address))
    _ready = connection, request
    return len(request.encode())


def answered() -> int:
    """It is sent; the answer's code."""

    async def answer() -> Command:
        connection, request = _ready
        return await connection.calls.call(request, TIMEOUT_MS)

    return in_process.connections.wait(answer()).code


async def run(only: str) -> list[Row]:
    rows = []
    async with serving(Served) as served:
        for name, request in requests().items():
            if only not in name:
                continue
            rows.append(await served.measured(name, request))
            print(line(rows[-1]), file=sys.stderr, flush=True)
    return rows


def line(row: Row) -> str:
    times = row.peak / row.size
    return (
        f"| {row.name} | {row.size / 1e6:,.2f} | {row.code} | {in_bold(row.held_ms)} | {in_bold(row.worst_ms)}"
        f" | {row.peak / 1e6:,.1f} | {times:,.1f} |"
    )


def page(rows: list[Row]) -> str:
    return "\n".join(
        [
            f"- {datetime.now(UTC).date()}, `python -m bench.large_requests`",
            f"- {machine.describe()}",
            "",
            "| request | MB | answer | held, ms | worst, ms | peak, MB | peak / size |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *map(line, rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="write the table here, too")
    parser.add_argument("--only", default="", help="requests with this in their names")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        text = page(runner.run(run(options.only)))
    print(text)
    if options.results is not None:
        options.results.write_text(text)


if __name__ == "__main__":
    main()
