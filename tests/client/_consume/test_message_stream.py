"""What a consumer hands out of its prefetch buffer."""

from __future__ import annotations

from dataclasses import replace

from roquet.client._consume.message_stream import MessageStream
from roquet.client._consume.prefetch import Delivery, PrefetchBuffer
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.redelivery import Redelivery
from roquet.client._consume.send_back import NoSendBack
from roquet.client.received import MessageSource
from roquet.protocol.records.message import COMPRESSED
from roquet.protocol.records.record import Record, decode

NO_HOST = bytes(8)
SIZE_MAX = 10


def record(number: int, body: bytes) -> Record:
    offset = number
    return decode(
        Record(0, 0, number, offset, 0, 0, NO_HOST, 0, NO_HOST, 0, offset, body, "T", "").encode()
    )


class Buffered:
    """A stream of the messages with these bodies, in one queue."""

    def __init__(self, *bodies: bytes) -> None:
        self.queue = ProcessQueue(0)
        self.buffer = PrefetchBuffer()
        redelivery = Redelivery(self.buffer, NoSendBack())
        self.stream = MessageStream(self.buffer, redelivery, SIZE_MAX, None)
        self.finish = redelivery.finish
        self.queue.take(((at, len(body)) for at, body in enumerate(bodies)), len(bodies))
        for number, body in enumerate(bodies):
            self.put(record(number, body))

    def put(self, each: Record) -> None:
        self.buffer.put(Delivery(each, MessageSource("broker-a"), self.queue, 0))

    async def bodies(self, count_max: int) -> list[bytes]:
        return [message.body for message in await self.stream.some(count_max, 0)]


async def test_messages_come_in_order_as_many_as_asked_for_are_here() -> None:
    buffered = Buffered(b"1", b"2", b"3")
    assert await buffered.bodies(2) == [b"1", b"2"]
    assert await buffered.bodies(2) == [b"3"]
    assert await buffered.bodies(2) == []


async def test_a_list_ends_when_its_bodies_are_large_together() -> None:
    buffered = Buffered(b"1" * 6, b"2" * 6, b"3")
    assert await buffered.bodies(9) == [b"1" * 6, b"2" * 6]


async def test_a_message_that_cannot_be_decoded_is_left_out_and_counts_as_failed() -> None:
    buffered = Buffered()
    buffered.queue.take([(0, 2), (1, 1)], 2)
    buffered.put(replace(record(0, b"no"), sys_flag=COMPRESSED))
    buffered.put(record(1, b"1"))

    assert await buffered.bodies(9) == [b"1"]
    await buffered.finish()
    assert buffered.queue.consumer_offset == 1


async def test_nothing_comes_from_a_closed_buffer_or_a_dropped_queue() -> None:
    buffered = Buffered(b"1")
    buffered.queue.drop()
    assert await buffered.bodies(9) == []
    buffered.buffer.close()
    assert await buffered.stream.next() is None
