"""A consumer that is stuck: `python -m tests.soak.stalled_member NAME_SERVER TOPIC KIND`.

The kind is the consumer group, too: "hangs", "hangs-in-order", or "never-asks".
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client.consumer import Consumer
from roquet.client.received import ReceivedMessage

HANGS, HANGS_IN_ORDER, NEVER_ASKS = "hangs", "hangs-in-order", "never-asks"
KINDS: Final = (HANGS, HANGS_IN_ORDER, NEVER_ASKS)
CONCURRENCY: Final = 4
TOTAL_SIZE_MAX: Final = 256 << 10


async def hang(_: ReceivedMessage) -> None:
    """A handler that waits for something that never comes."""
    await asyncio.Event().wait()


async def main(name_server: str, topic: str, kind: str) -> None:
    limits = PrefetchLimits(total_size_max=TOTAL_SIZE_MAX) if kind == NEVER_ASKS else None
    async with Consumer(
        name_server,
        kind,
        topic,
        "earliest",
        ordered=kind == HANGS_IN_ORDER,
        limits=limits,
        client_id=kind,
    ) as consumer:
        if kind == NEVER_ASKS:
            await asyncio.Event().wait()
        await consumer.run(hang, concurrency=CONCURRENCY)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
