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

from roquet import Consumer, Producer, SendStatus

NAME_SERVER = "127.0.0.1:9876"
TOPIC = "example-orders"
GROUP = "example-billing"
COUNT = 10


async def produce(name_server: str) -> None:
    """Orders of one customer go to one queue, in their order."""
    async with Producer(name_server, "example-shop") as producer:
        for number in range(COUNT):
            customer = f"customer-{number % 3}"
            result = await producer.send(
                TOPIC, b"order %d" % number, tags="new", keys=f"o-{number}", sharding_key=customer
            )
            if result.status is not SendStatus.SEND_OK:
                print(
                    f"stored, but less safely than asked for: {result.status.name} {result.remark}"
                )
            print(f"sent      {result.queue} {result.queue_offset}: order {number} of {customer}")


async def consume(name_server: str) -> None:
    """As many as were sent."""
    received = 0
    async with Consumer(name_server, GROUP, {TOPIC: "new"}, "earliest") as consumer:
        async for message in consumer:
            async with (
                message
            ):  # acknowledged at the end of the block; an exception in it would bring it again
                print(f"received  {message.queue} {message.queue_offset}: {message.body.decode()}")
            received += 1
            if received == COUNT:
                break


async def main(name_server: str) -> None:
    await produce(name_server)
    await consume(name_server)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(*sys.argv[1:] or [NAME_SERVER]))
