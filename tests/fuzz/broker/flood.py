"""A program of its own: hostile clients against one server's ports, for so many seconds and with a seed.

    python -m tests.fuzz.broker.flood --seed 1 --seconds 10 --port 10911 --ha-port 10912

It prints one line of JSON at its end: how many requests left, answers came, and connections were refused or ended.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Final

import click

from tests.fuzz.broker.hostile import Hostility

CLIENTS: Final = 6
FRAMES_PER_BURST: Final = 40
BURST_BYTES_MAX: Final = 1 << 20
ANSWERED_WITHIN_S: Final = 0.05
REQUESTS_PER_SECOND_MAX: Final = 3_000
"""Of all clients together: what is asked for here is oddity, not load, and the machine is shared
with the witness.
"""


class Client:
    """One hostile client: bursts of requests over connections that it treats badly."""

    def __init__(
        self, seed: int, ports: tuple[int, ...], ends_at: float, counts: Counter[str]
    ) -> None:
        self._chance = random.Random(seed)
        self._hostility = Hostility(seed)
        self._ports = ports
        self._ends_at = ends_at
        self._counts = counts

    async def run(self) -> None:
        while time.monotonic() < self._ends_at:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._chance.choice(self._ports)
                )
            except OSError:
                self._counts["refused"] += 1
                await asyncio.sleep(0.05)
                continue
            try:
                await self._use(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                self._counts["ended"] += 1
            finally:
                writer.transport.abort()

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reads = self._chance.random() < 0.8
        for _ in range(self._chance.choice((1, 3, 10))):
            frames = [
                self._hostility.frame()
                for _ in range(self._chance.choice((1, 5, FRAMES_PER_BURST)))
            ]
            writer.write(b"".join(frames)[:BURST_BYTES_MAX])
            self._counts["sent"] += len(frames)
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await writer.drain()
            if reads:
                await self._read(reader)
            await asyncio.sleep(len(frames) * CLIENTS / REQUESTS_PER_SECOND_MAX)
            if time.monotonic() > self._ends_at:
                return

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """All answers that come soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                while True:
                    size = int.from_bytes(await reader.readexactly(4))
                    await reader.readexactly(size)
                    self._counts["answered"] += 1


async def as_slaves(seed: int, port: int, ends_at: float, counts: Counter[str]) -> None:
    """Connect to the replication port, report anything, and leave."""
    chance, hostility = random.Random(seed), Hostility(seed)
    while time.monotonic() < ends_at:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(chance.choice((0, 1, 3))):
                writer.write(hostility.slave_report())
            counts["reports"] += 1
            await asyncio.sleep(chance.choice((0, 0.02)))
            writer.transport.abort()
        await asyncio.sleep(0.1)


async def flood(
    seed: int, seconds: float, ports: tuple[int, ...], ha_port: int | None
) -> Counter[str]:
    counts: Counter[str] = Counter()
    ends_at = time.monotonic() + seconds
    async with asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(Client(seed * 100 + number, ports, ends_at, counts).run())
        if ha_port is not None:
            clients.create_task(as_slaves(seed, ha_port, ends_at, counts))
    return counts


@click.command()
@click.option("--seed", type=int, required=True)
@click.option("--seconds", type=float, required=True)
@click.option(
    "--port",
    "ports",
    type=int,
    multiple=True,
    required=True,
    help="Of clients; may be given several times.",
)
@click.option("--ha-port", type=int, help="Of slaves.")
def main(seed: int, seconds: float, ports: tuple[int, ...], ha_port: int | None) -> None:
    sys.stdout.write(json.dumps(asyncio.run(flood(seed, seconds, ports, ha_port))) + "\n")


if __name__ == "__main__":
    main()
