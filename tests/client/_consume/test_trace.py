"""The trace of what a consumer gives to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from roquet.client.received import ReceivedMessage
from roquet.protocol.records.message import TRACE_TOPIC
from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.consumers import consumer
from tests.client.traces import trace_records

PROPERTIES = "UNIQ_KEY\x01ID\x02KEYS\x01k1 k2\x02MSG_REGION\x01north"


@pytest.fixture(autouse=True)
def topics(broker: FakeBroker) -> None:
    broker.create("T", 1)
    broker.create(TRACE_TOPIC, 1)


def consumes(
    cluster: FakeCluster, settle: Callable[[ReceivedMessage], None], topic: str = "T"
) -> None:
    """A traced consumer gets one message, has it for two seconds, and settles it."""

    async def run() -> None:
        async with consumer(cluster, topic, trace=True, consume_timeout_ms=10_000) as c:
            message = await c.get()
            await asyncio.sleep(2)
            settle(message)

    cluster.run(run)


@pytest.mark.parametrize(
    ("settle", "is_ok", "code"),
    [(ReceivedMessage.ack, "true", "0"), (ReceivedMessage.retry, "false", "4")],
)
def test_two_records_tell_how_long_it_took_and_how_it_ended(
    cluster: FakeCluster,
    broker: FakeBroker,
    settle: Callable[[ReceivedMessage], None],
    is_ok: str,
    code: str,
) -> None:
    broker.store("T", 0, b"hello", PROPERTIES, reconsume_times=3)
    consumes(cluster, settle)
    before, after = trace_records(broker)
    request_id = before[4]
    assert before[2:] == ["north", "G", request_id, "ID", "3", "k1 k2"]
    assert after[:7] == ["SubAfter", request_id, "ID", "2000", is_ok, "k1 k2", code]
    assert after[8] == "G"
    assert int(after[7]) - int(before[1]) == 2000


def test_a_message_that_is_not_settled_in_time_has_run_out_of_time(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with consumer(cluster, trace=True, consume_timeout_ms=10_000) as c:
            message = await c.get()
            await asyncio.sleep(25)
            message.ack()

    broker.store("T", 0, b"hello", PROPERTIES)
    cluster.run(run)
    before, after, *_ = trace_records(broker)
    assert (before[0], after[0], after[4], after[6]) == ("SubBefore", "SubAfter", "false", "1")
    assert [fields[0] for fields in trace_records(broker)].count("SubAfter") == 1


def test_a_message_that_says_so_is_not_traced(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.store("T", 0, b"hello", PROPERTIES + "\x02TRACE_ON\x01false")
    consumes(cluster, ReceivedMessage.ack)
    assert trace_records(broker) == []


def test_who_consumes_the_trace_leaves_none(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.store(TRACE_TOPIC, 0, b"hello")
    consumes(cluster, ReceivedMessage.ack, TRACE_TOPIC)
    assert trace_records(broker) == [["hello"]]


def test_without_region_and_keys_a_record_says_null(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    record = broker.store("T", 0, b"hello")
    consumes(cluster, ReceivedMessage.ack)
    before, after = trace_records(broker)
    assert (before[2], before[5], before[7]) == ("null", record.offset_message_id, "null")
    assert after[5] == "null"
