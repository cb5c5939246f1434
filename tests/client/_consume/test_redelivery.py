"""Failed messages: who delivers them again and when, and when their queue goes on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from roquet.client._consume.prefetch import (
    Delivery,
    DirectDelivery,
    OrderedPrefetchBuffer,
    PrefetchBuffer,
)
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.redelivery import (
    FINISH_S_MAX,
    REDELIVERY_PAUSE_S,
    SUSPEND_MS,
    OrderedRedelivery,
    Redelivery,
)
from roquet.client._consume.send_back import SendBack
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.client.received import MessageSource
from roquet.errors import DamagedBody, MessageError
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.protocol.examples import RECORD

ASK, COPY = RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2
REFUSED: Final = ResponseCode.SYSTEM_ERROR
MAX: Final = 2

Work = Callable[["Failing"], Coroutine[Any, Any, None]]


class Failing:
    """The first message of a queue, which a consumer may say that it failed."""

    def __init__(self, cluster: FakeCluster, session: Session, record: Record) -> None:
        self.sim = cluster.sim
        self.process_queue = ProcessQueue(0)
        self.process_queue.take([(record.queue_offset, 1)], record.queue_offset + 1)
        self.delivery = Delivery(record, MessageSource("broker-a"), self.process_queue, 0)
        send_back = SendBack(session, "G", MAX)
        self.buffer = PrefetchBuffer()
        self.redelivery = Redelivery(self.buffer, send_back)
        self.ordered_buffer = OrderedPrefetchBuffer()
        self.ordered = OrderedRedelivery(self.ordered_buffer, send_back, MAX)
        self.unending = OrderedRedelivery(self.ordered_buffer, send_back, None)

    @property
    def is_settled(self) -> bool:
        return not self.process_queue.count


def run(cluster: FakeCluster, broker: FakeBroker, work: Work) -> None:
    broker.create("T", 1)
    broker.create("%RETRY%G", 1)
    record = broker.store("T", 0, b"body", "UNIQ_KEY\x01KEY")

    async def main() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            await work(Failing(cluster, session, record))

    cluster.run(main)


def test_a_message_is_settled_when_a_broker_took_it_back(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(failing: Failing) -> None:
        failing.redelivery.failed(failing.delivery, 4)
        assert not failing.is_settled
        await failing.redelivery.finish()
        assert failing.is_settled
        assert failing.buffer.take() is None

    run(cluster, broker, work)
    assert [request.fields["delayLevel"] for request in broker.requests[ASK]] == ["4"]


def test_a_message_that_no_broker_takes_back_comes_again_here_after_a_pause(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.script[ASK], broker.script[COPY] = [REFUSED] * 9, [REFUSED] * 9

    async def work(failing: Failing) -> None:
        began = failing.sim.now_s
        failing.redelivery.failed(failing.delivery)
        again = await failing.buffer.next()
        assert again is not None
        assert failing.sim.now_s - began >= REDELIVERY_PAUSE_S
        assert (again.record, again.reconsume_times) == (failing.delivery.record, 1)
        assert not failing.is_settled

    run(cluster, broker, work)


def test_once_the_buffer_is_closed_nothing_is_sent_back(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(failing: Failing) -> None:
        failing.buffer.close()
        failing.redelivery.failed(failing.delivery)
        await failing.redelivery.finish()

    run(cluster, broker, work)
    assert not broker.requests[ASK]


def test_the_end_waits_a_limited_time_for_the_brokers(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.script[ASK] = [SILENCE]

    async def work(failing: Failing) -> None:
        began = failing.sim.now_s
        failing.redelivery.failed(failing.delivery)
        await failing.redelivery.finish()
        assert failing.sim.now_s - began == pytest.approx(FINISH_S_MAX, abs=0.1)
        assert not failing.is_settled

    run(cluster, broker, work)


def test_a_message_of_an_administrator_that_failed_is_only_answered(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    told: list[bool] = []

    async def work(failing: Failing) -> None:
        direct = DirectDelivery(RECORD, MessageSource("broker-a"), told.append)
        failing.redelivery.failed(direct)
        failing.ordered.unreadable(direct, MessageError("cannot be decompressed"))
        await failing.redelivery.finish()

    run(cluster, broker, work)
    assert told == [False, False]
    assert not broker.requests[ASK]


@pytest.mark.parametrize(
    ("error", "level"), [(MessageError("too large"), "0"), (DamagedBody("damaged"), "-1")]
)
def test_a_message_that_cannot_be_opened_has_failed_and_a_damaged_one_for_good(
    cluster: FakeCluster,
    broker: FakeBroker,
    error: MessageError,
    level: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(failing: Failing) -> None:
        failing.redelivery.unreadable(failing.delivery, error)
        await failing.redelivery.finish()

    run(cluster, broker, work)
    assert [request.fields["delayLevel"] for request in broker.requests[ASK]] == [level]
    (record,) = (record for record in caplog.records if "cannot be opened" in record.getMessage())
    assert record.levelname == "ERROR"
    assert record.getMessage().endswith(f"queue=0 offset=0 msgId=KEY error={error}")


# in order


def test_in_order_a_failed_message_comes_again_here_after_a_second(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(failing: Failing) -> None:
        began, delivery = failing.sim.now_s, failing.delivery
        for times in range(1, MAX + 1):
            failing.ordered.failed(delivery)
            again = await failing.ordered_buffer.next()
            assert again is not None
            delivery = again
            assert delivery.reconsume_times == times
            assert failing.sim.now_s - began == pytest.approx(times * SUSPEND_MS / 1000)
        assert not failing.is_settled
        failing.ordered.failed(delivery)
        await failing.ordered.finish()
        assert failing.is_settled
        assert failing.ordered_buffer.take() is None

    run(cluster, broker, work)
    assert not broker.requests[ASK]
    assert len(broker.requests[COPY]) == 1


@pytest.mark.parametrize("how", ["by the application", "by its body"])
def test_in_order_a_message_may_be_given_up_at_once_and_the_next_one_comes(
    cluster: FakeCluster, broker: FakeBroker, how: str
) -> None:
    async def work(failing: Failing) -> None:
        first = failing.delivery
        following = Delivery(RECORD, MessageSource("broker-a"), failing.process_queue, 0)
        failing.ordered_buffer.put(first)
        failing.ordered_buffer.put(following)
        assert failing.ordered_buffer.take() is first
        if how == "by the application":
            failing.unending.failed(first, -1)
        else:
            failing.unending.unreadable(first, MessageError("too large"))
        await failing.unending.finish()
        assert failing.is_settled
        assert failing.ordered_buffer.take() is following

    run(cluster, broker, work)
    assert len(broker.requests[COPY]) == 1


def test_in_order_a_message_that_no_broker_takes_stops_its_queue(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.script[COPY] = [REFUSED] * 9

    async def work(failing: Failing) -> None:
        failing.ordered.failed(failing.delivery, -1)
        again = await failing.ordered_buffer.next()
        assert again is not None
        assert again.reconsume_times == 1
        assert not failing.is_settled

    run(cluster, broker, work)
