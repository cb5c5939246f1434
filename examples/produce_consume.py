"""Send ten orders, receive them as a member of a consumer group, and say what came.

    roquet dev                                          # in another terminal
    python examples/produce_consume.py                  # or with a name server: ... 10.0.0.5:9876

Run it twice: the group goes on where it ended, so the second run receives what the second run sent.
A run that dies half way leaves messages unacknowledged; the next one receives them first.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import roquet

NAME_SERVER = "127.0.0.1:9876"
TOPIC = "example-orders"
GROUP = "example-billing"
COUNT = 10


async def produce(mq: roquet.Client) -> None:
    """Orders of one customer go to one queue, in their order."""
    for number in range(COUNT):
        customer = f"customer-{number % 3}"
        result = await mq.send(
            TOPIC, b"order %d" % number, tags="new", keys=f"o-{number}", sharding_key=customer
        )
        if result.status is not roquet.SendStatus.SEND_OK:
            print(f"stored, but less safely than asked for: {result.status.name} {result.remark}")
        print(f"sent      {result.queue} {result.queue_offset}: order {number} of {customer}")


async def consume(mq: roquet.Client) -> None:
    """As many as were sent."""
    received = 0
    async with mq.consumer(GROUP, {TOPIC: "new"}, start="earliest") as consumer:
        async for message in consumer:
            # The end of the block acknowledges the message. After an exception in it, which is
            # logged and not raised, the message comes again later.
            async with message:
                print(f"received  {message.queue} {message.queue_offset}: {message.body.decode()}")
            received += 1
            if received == COUNT:
                break


async def main(name_server: str) -> None:
    async with roquet.connect(name_server) as mq:
        await produce(mq)
        await consume(mq)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(*sys.argv[1:] or [NAME_SERVER]))
