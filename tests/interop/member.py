"""A program: a member of a group that prints what it gets, as the drivers of Apache's clients do.

    python member.py NAME_SERVER TOPIC GROUP ordered|concurrent

SIGTERM ends it in order.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from roquet import Consumer, ReceivedMessage


async def show(message: ReceivedMessage) -> None:
    """A line for each message, which is acknowledged after it."""
    line = {
        "body": message.body.decode(),
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(name_server: str, topic: str, group: str, way: str) -> None:
    consumer = Consumer(name_server, group, topic, "earliest", ordered=way == "ordered")
    async with consumer:
        sys.stderr.write("started\n")
        sys.stderr.flush()
        await consumer.run(show, concurrency=8, stop_signals=[signal.SIGTERM])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
