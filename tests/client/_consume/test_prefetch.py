"""The prefetch buffer: the order of deliveries, dropped queues, and that each delivery is settled
once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from roquet.client._consume.prefetch import (
    Delivery,
    DirectDelivery,
    OrderedPrefetchBuffer,
    PrefetchBuffer,
)
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client.received import MessageSource
from roquet.errors import DamagedBody, MessageError
from tests.protocol.examples import RECORD

BUFFERS: Final = [PrefetchBuffer, OrderedPrefetchBuffer]
SOURCE: Final = MessageSource("b")


class Queue:
    """A process queue, and deliveries of messages in it."""

    def __init__(self) -> None:
        self.process_queue = ProcessQueue(0)

    def delivery(self, offset: int) -> Delivery:
        self.process_queue.take([(offset, 2)], offset + 1)
        return Delivery(replace(RECORD, queue_offset=offset), SOURCE, self.process_queue, 0)

    def deliveries(self, *offsets: int) -> list[Delivery]:
        return [self.delivery(offset) for offset in offsets]


def filled(kind: type[PrefetchBuffer], *deliveries: Delivery) -> PrefetchBuffer:
    buffer = kind()
    for delivery in deliveries:
        buffer.put(delivery)
    return buffer


def taken(buffer: PrefetchBuffer) -> list[Delivery]:
    found: list[Delivery] = []
    while (delivery := buffer.take()) is not None:
        found.append(delivery)
    return found


# one delivery


class Settled:
    """What a message told when it was settled."""

    def __init__(self, delivery: Delivery) -> None:
        self.failures: list[tuple[Delivery, int]] = []
        self.ended: list[tuple[Delivery, int]] = []
        """Those that are settled, with the consumer offset at that time."""
        self.message = delivery.message(self)

    def failed(self, delivery: Delivery, delay_level: int) -> None:
        self.failures.append((delivery, delay_level))

    def settled(self, delivery: Delivery) -> None:
        self.ended.append((delivery, delivery.process_queue.consumer_offset))


def test_an_acknowledged_message_moves_its_queue_on_before_the_next_may_come() -> None:
    queue = Queue()
    delivery = queue.delivery(5)
    told = Settled(delivery)

    told.message.ack()

    assert told.ended == [(delivery, 6)]


def test_a_failed_message_stays_in_its_queue_and_is_told_of_with_its_delay() -> None:
    queue = Queue()
    delivery = queue.delivery(5)
    told = Settled(delivery)

    told.message.retry(3)

    assert (told.failures, told.ended) == ([(delivery, 3)], [])
    assert queue.process_queue.consumer_offset == 5


def test_a_failed_message_of_a_dropped_queue_is_settled_without_another_delivery() -> None:
    queue = Queue()
    delivery = queue.delivery(5)
    told = Settled(delivery)
    queue.process_queue.drop()

    told.message.retry(3)

    assert (told.failures, told.ended) == ([], [(delivery, 5)])
    assert queue.process_queue.has(5)


@pytest.mark.parametrize("first", ["ack", "retry"])
@pytest.mark.parametrize("second", ["ack", "retry"])
def test_a_delivery_is_settled_once(first: str, second: str) -> None:
    told = Settled(Queue().delivery(5))

    getattr(told.message, first)()
    getattr(told.message, second)()

    assert len(told.failures) + len(told.ended) == 1
    assert bool(told.failures) == (first == "retry")


def test_the_next_delivery_of_a_message_counts_one_more_and_is_settled_by_itself() -> None:
    delivery = Queue().delivery(5)
    first, again = Settled(delivery), delivery.again()
    first.message.retry()
    second = Settled(again)

    second.message.ack()

    assert (first.message.reconsume_times, second.message.reconsume_times) == (0, 1)
    assert [delivery for delivery, _ in second.ended] == [again]
    assert not again.process_queue.has(5)


def test_a_body_that_cannot_be_delivered_is_an_error() -> None:
    process_queue = ProcessQueue(0)
    damaged = Delivery(replace(RECORD, body_crc=1), SOURCE, process_queue, 0)
    compressed = Delivery(replace(RECORD, sys_flag=1), SOURCE, process_queue, 0)

    with pytest.raises(DamagedBody):
        _ = Settled(damaged).message.body
    with pytest.raises(MessageError):
        _ = Settled(compressed).message.body


def test_each_delivery_knows_the_bounds_of_its_queue() -> None:
    delivery = Delivery(RECORD, MessageSource("b", (2, 9)), ProcessQueue(0), 0)
    for each in (delivery, delivery.again()):
        message = Settled(each).message
        assert (message.min_offset, message.max_offset) == (2, 9)


# the buffer


@pytest.mark.parametrize("kind", BUFFERS)
def test_deliveries_of_several_queues_come_in_their_order(kind: type[PrefetchBuffer]) -> None:
    one, two = Queue().delivery(1), Queue().delivery(1)

    assert taken(filled(kind, one, two)) == [one, two]
    assert taken(filled(kind)) == []


@pytest.mark.parametrize("kind", BUFFERS)
def test_nothing_of_a_dropped_queue_is_delivered(kind: type[PrefetchBuffer]) -> None:
    dropped, other = Queue(), Queue()
    last = other.delivery(1)
    buffer = filled(kind, *dropped.deliveries(1, 2), last)
    dropped.process_queue.drop()

    assert taken(buffer) == [last]
    assert not buffer.is_busy(dropped.process_queue)


@pytest.mark.parametrize("kind", BUFFERS)
async def test_who_waits_gets_what_comes_and_nothing_once_the_buffer_is_closed(
    kind: type[PrefetchBuffer],
) -> None:
    buffer, delivery = kind(), Queue().delivery(1)
    waiting = asyncio.create_task(buffer.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    buffer.put(delivery)
    assert await waiting is delivery

    waiters = [asyncio.create_task(buffer.next()) for _ in range(2)]
    await asyncio.sleep(0)
    buffer.close()
    assert await asyncio.gather(*waiters) == [None, None]
    assert await buffer.next() is None


@pytest.mark.parametrize("kind", BUFFERS)
async def test_closing_discards_what_was_not_delivered(kind: type[PrefetchBuffer]) -> None:
    buffer = filled(kind, *Queue().deliveries(1, 2))

    buffer.close()

    assert buffer.closed
    assert buffer.take() is None
    assert await buffer.next() is None


async def test_who_waits_does_not_get_what_was_dropped_meanwhile() -> None:
    dropped, other = Queue(), Queue()
    buffer, last = PrefetchBuffer(), other.delivery(1)
    waiting = asyncio.create_task(buffer.next())
    await asyncio.sleep(0)
    buffer.put(dropped.delivery(1))
    dropped.process_queue.drop()
    await asyncio.sleep(0)
    buffer.put(last)

    assert await waiting is last


# messages that an administrator sends


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("acknowledges", [True, False])
async def test_a_direct_delivery_answers_whether_it_was_acknowledged(
    kind: type[PrefetchBuffer], acknowledges: bool
) -> None:
    buffer = kind()
    outcome = asyncio.create_task(buffer.deliver_directly(RECORD, SOURCE))
    delivery = await buffer.next()
    assert isinstance(delivery, DirectDelivery)

    if acknowledges:
        Settled(delivery).message.ack()
    else:
        delivery.failed()

    assert await outcome is acknowledges
    assert not buffer.is_busy(delivery.process_queue)


async def test_a_direct_delivery_is_settled_after_who_waited_for_it_has_gone() -> None:
    buffer = PrefetchBuffer()
    outcome = asyncio.create_task(buffer.deliver_directly(RECORD, SOURCE))
    delivery = await buffer.next()
    assert isinstance(delivery, DirectDelivery)
    outcome.cancel()
    await asyncio.sleep(0)

    delivery.done()

    assert outcome.cancelled()


def test_a_direct_delivery_waits_for_no_other_message_in_order() -> None:
    queue = Queue()
    first, second = queue.deliveries(1, 2)
    direct = DirectDelivery(RECORD, SOURCE, lambda _: None)

    assert taken(filled(OrderedPrefetchBuffer, first, second, direct)) == [first, direct]


# in order


def test_a_message_comes_when_the_one_before_it_in_its_queue_is_settled() -> None:
    queue, other = Queue(), Queue()
    first, second, third = queue.deliveries(1, 2, 3)
    elsewhere = other.delivery(1)
    buffer = filled(OrderedPrefetchBuffer, first, second, third, elsewhere)

    assert taken(buffer) == [first, elsewhere]
    buffer.settled(first)
    assert taken(buffer) == [second]
    buffer.settled(second)
    assert taken(buffer) == [third]


def test_a_failed_message_comes_again_before_the_next_of_its_queue() -> None:
    first, second = Queue().deliveries(1, 2)
    buffer = filled(OrderedPrefetchBuffer, first, second)
    again = first.again()

    assert taken(buffer) == [first]
    buffer.put_again(again)
    assert taken(buffer) == [again]
    buffer.settled(again)
    assert taken(buffer) == [second]


def test_a_queue_is_busy_from_its_first_message_until_its_last_is_settled() -> None:
    queue = Queue()
    first, second = queue.deliveries(1, 2)
    buffer = OrderedPrefetchBuffer()
    busy = [buffer.is_busy(queue.process_queue)]

    for delivery in (first, second):
        buffer.put(delivery)
        busy.append(buffer.is_busy(queue.process_queue))
    for delivery in (first, second):
        buffer.take()
        buffer.settled(delivery)
        busy.append(buffer.is_busy(queue.process_queue))

    assert busy == [False, True, True, True, False]
    buffer.put(queue.delivery(3))
    assert len(taken(buffer)) == 1


def test_a_queue_that_is_dropped_is_busy_until_its_message_is_settled() -> None:
    queue = Queue()
    first, second = queue.deliveries(1, 2)
    buffer = filled(OrderedPrefetchBuffer, first, second)
    assert taken(buffer) == [first]
    queue.process_queue.drop()

    assert buffer.is_busy(queue.process_queue)
    buffer.settled(first)
    assert not buffer.is_busy(queue.process_queue)
    assert taken(buffer) == []


def test_without_order_no_queue_is_busy() -> None:
    queue = Queue()

    assert not filled(PrefetchBuffer, *queue.deliveries(1, 2)).is_busy(queue.process_queue)


def test_without_order_a_failed_message_comes_again_behind_those_that_wait() -> None:
    first, second = Queue().deliveries(1, 2)
    buffer = filled(PrefetchBuffer, first, second)
    assert buffer.take() is first
    again = first.again()

    buffer.put_again(again)

    assert taken(buffer) == [second, again]


@pytest.mark.parametrize("kind", [PrefetchBuffer, OrderedPrefetchBuffer])
def test_messages_of_a_paused_queue_are_set_aside_and_come_first_afterwards(
    kind: type[PrefetchBuffer],
) -> None:
    paused, other = Queue(), Queue()
    buffer = filled(kind, *paused.deliveries(1, 2), *other.deliveries(5))
    paused.process_queue.pause()
    assert [delivery.record.queue_offset for delivery in taken(buffer)] == [5]
    buffer.put(paused.delivery(3))
    assert buffer.next_offset(paused.process_queue) == 1
    assert buffer.next_offset(other.process_queue) is None
    paused.process_queue.resume()
    buffer.restore(paused.process_queue)
    assert [delivery.record.queue_offset for delivery in taken(buffer)] == (
        [1] if kind is OrderedPrefetchBuffer else [1, 2, 3]
    )


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_dropped_queue_is_not_busy_if_none_of_its_messages_was_delivered(
    is_paused: bool,
) -> None:
    queue = Queue()
    buffer = filled(OrderedPrefetchBuffer, *queue.deliveries(1, 2))
    if is_paused:
        queue.process_queue.pause()
        assert taken(buffer) == []
    queue.process_queue.drop()
    buffer.forget(queue.process_queue)
    assert not buffer.is_busy(queue.process_queue)
    buffer.restore(queue.process_queue)
    assert taken(buffer) == []


def test_a_failed_message_of_a_dropped_queue_makes_it_idle() -> None:
    queue = Queue()
    buffer = filled(OrderedPrefetchBuffer, *queue.deliveries(1, 2))
    (delivery,) = taken(buffer)
    queue.process_queue.drop()
    buffer.forget(queue.process_queue)
    assert buffer.is_busy(queue.process_queue)
    buffer.put_again(delivery.again())
    assert not buffer.is_busy(queue.process_queue)
