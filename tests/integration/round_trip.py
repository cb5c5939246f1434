"""A client's program: sends messages, receives each of them in several ways, and counts them.

python round_trip.py HOST:PORT TOPIC
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Final

import roquet
from roquet.admin.backlog import backlog
from roquet.admin.cluster import AdminClient

BODIES: Final = [b"%d" % number for number in range(9)] + [b"x" * 100_000]
SEND_MS_MAX: Final = 60_000
"""A busy machine may let a client wait."""


async def main(name_server: str, topic: str) -> None:
    for name in roquet.__all__:
        getattr(roquet, name)
    for module in ("access", "backlog", "cluster", "ha"):
        importlib.import_module(f"roquet.admin.{module}")

    async with roquet.Producer(name_server, "shop", timeout_ms=SEND_MS_MAX) as producer:
        for body in BODIES:
            await producer.send(topic, body, tags="new", keys="key")

    received: list[bytes] = []
    async with roquet.Consumer(
        name_server, f"{topic}-billing", {topic: "new"}, "earliest"
    ) as billing:
        async for message in billing:
            async with message:
                received.append(message.body)
            if len(received) == len(BODIES):
                break
    assert sorted(received) == sorted(BODIES)

    async with roquet.PullConsumer(name_server) as reader:
        found = [await reader.max_offset(queue) for queue in await reader.queues(topic)]
    assert sum(found) == len(BODIES)

    async with AdminClient(name_server) as cluster:
        seen = await backlog(cluster, [f"{topic}-billing"])
    assert not seen.failures
    sys.stdout.write(f"received {len(received)}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
