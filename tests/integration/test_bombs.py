"""A body of 64 MiB in 64 KB, on a real broker: it stops nobody, and ends among the dead letters as
it was stored.
"""

from __future__ import annotations

import asyncio
import zlib

import pytest

from roquet import Consumer, MessageError, MessageQueue, Producer, PullConsumer
from roquet.dev import Cluster
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from tests.interop import wire
from tests.interop.processes import SEND_MS_MAX

BOMB = zlib.compress(bytes(UNCOMPRESSED_MAX + 1))
BRIEFLY = " ".join(["1s"] * 18)
DEAD = MessageQueue("%DLQ%careful", "dev", 0)


async def test_a_bomb_stops_no_group_and_is_a_dead_letter_in_the_end() -> None:
    async with (
        Cluster(delay_levels=BRIEFLY) as cluster,
        Producer(cluster.name_server, "shop", timeout_ms=SEND_MS_MAX) as producer,
    ):
        first = await producer.send("orders", b"before")
        fields = wire.send_fields("orders", first.queue.queue_id, "UNIQ_KEY\x01BOMB") | {
            "sysFlag": "1"
        }
        answer = await asyncio.to_thread(
            wire.ask, cluster.address(), wire.SEND_MESSAGE, fields, BOMB
        )
        assert answer.code == 0
        await producer.send("orders", b"behind", queue=first.queue)

        async with (
            Consumer(
                cluster.name_server, "careful", "orders", "earliest", max_reconsume_times=1
            ) as consumer,
            PullConsumer(cluster.name_server) as reader,
            asyncio.timeout(60),
        ):
            found: list[bytes] = []
            while len(found) < 2:
                async with consumer.batch(timeout_ms=500) as messages:
                    found += [message.body for message in messages]
            assert found == [b"before", b"behind"]
            while await end_of(reader, DEAD) == 0:
                assert await consumer.get_many(timeout_ms=500) == []
            (letter,) = (await reader.pull(DEAD, 0)).messages
            assert (letter.stored_body, letter.message_id) == (BOMB, "BOMB")
            with pytest.raises(MessageError, match="when it is decompressed"):
                _ = letter.body
            assert await consumer.get_many(timeout_ms=500) == []


async def end_of(reader: PullConsumer, queue: MessageQueue) -> int:
    """0 as long as there is no such topic."""
    return await reader.max_offset(queue) if queue.topic in await reader.topics() else 0
