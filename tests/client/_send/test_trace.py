"""The trace of what is sent: complete, in few messages, and never in the way of a send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from roquet.client._send.trace import LINGER_S, RECORDS_MAX, TEXT_SIZE_MAX, WORDS_SIZE_MAX
from roquet.client.producer import Producer
from roquet.errors import ConfigError, MessageError
from roquet.protocol.records.message import KEYS, TRACE_TOPIC, Message
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.producers import bodies, producer
from tests.client.traces import trace_messages, trace_records

SEND = RequestCode.SEND_MESSAGE_V2


def kinds(broker: FakeBroker, topic: str = TRACE_TOPIC) -> list[str]:
    return [fields[0] for fields in trace_records(broker, topic)]


@pytest.fixture(autouse=True)
def topic(broker: FakeBroker) -> None:
    broker.create("T", 1)
    broker.create(TRACE_TOPIC, 1)


def sends(cluster: FakeCluster, *messages: Message, **options: Any) -> None:
    """A traced producer sends these and is closed at once."""

    async def run() -> None:
        async with producer(cluster, trace=True, **options) as p:
            for message in messages:
                await p.send(message)

    cluster.run(run)


def test_a_record_tells_where_the_message_is_and_the_keys_find_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> tuple[str, str]:
        async with producer(cluster, trace=True) as p:
            result = await p.send("T", b"hello", tags="a", keys=("k1", "k2"))
            return result.message_id, result.offset_message_id

    message_id, offset_message_id = cluster.run(run)
    (fields,) = trace_records(broker)
    assert fields[0] == "Pub"
    assert fields[2:10] == [
        "DefaultRegion",
        "P",
        "T",
        message_id,
        "a",
        "k1 k2",
        broker.address,
        "5",
    ]
    assert fields[11:] == ["0", offset_message_id, "true"]
    (stored,) = trace_messages(broker)
    assert stored.properties[KEYS] == f"{message_id} k1 k2"
    assert broker.requests[SEND][-1].fields["a"] == "_INNER_TRACE_PRODUCER-P-PRODUCE-1"


def test_each_message_of_a_batch_has_its_own_record(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> list[tuple[str, str]]:
        async with producer(cluster, trace=True) as p:
            results = await p.send_batch(
                [Message("T", b"x" * size, keys=f"k{size}") for size in (1, 2)]
            )
            return [(each.message_id, each.offset_message_id) for each in results]

    expected = cluster.run(run)
    found = trace_records(broker)
    assert [(fields[5], fields[12]) for fields in found] == expected
    assert [(fields[7], fields[9]) for fields in found] == [("k1", "1"), ("k2", "2")]


def test_records_that_come_soon_after_each_other_share_a_message(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    sends(cluster, *(Message("T", b"%d" % number) for number in range(10)))
    assert kinds(broker) == ["Pub"] * 10
    assert len(trace_messages(broker)) == 1


def test_records_are_sent_while_the_producer_lives(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> list[int]:
        counts = []
        async with producer(cluster, trace=True) as p:
            for _ in range(2):
                await p.send("T", b"hello")
                await asyncio.sleep(LINGER_S / 2)
                counts.append(len(kinds(broker)))
                await asyncio.sleep(LINGER_S)
                counts.append(len(kinds(broker)))
        return counts

    assert cluster.run(run) == [0, 1, 1, 2]


def test_trace_messages_stay_below_what_brokers_take(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    long = tuple(f"key-{number}" for number in range(600))
    sends(cluster, *(Message("T", b"hello", keys=long) for _ in range(60)))
    sends(cluster, *(Message("T", b"hello", tags="t" * 150) for _ in range(1200)))
    assert kinds(broker) == ["Pub"] * 1260
    assert len(trace_messages(broker)) > 3
    for message in trace_messages(broker):
        assert len(message.body) <= TEXT_SIZE_MAX
        assert len(message.properties[KEYS]) <= WORDS_SIZE_MAX


def test_a_message_with_more_keys_than_a_trace_message_may_have_is_found_by_its_id(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    many = tuple(f"key-{number}" for number in range(3000))
    sends(cluster, Message("T", b"hello", keys=many))
    (fields,), (message,) = trace_records(broker), trace_messages(broker)
    assert message.properties[KEYS] == fields[5]
    assert fields[7] == " ".join(many)


@pytest.mark.parametrize(("switch", "expected"), [("false", []), ("true", ["Pub"])])
def test_a_broker_may_switch_the_trace_off(
    cluster: FakeCluster, broker: FakeBroker, switch: str, expected: list[str]
) -> None:
    broker.sent_fields = {"TRACE_ON": switch, "MSG_REGION": "north"}
    sends(cluster, Message("T", b"hello"))
    assert kinds(broker) == expected
    assert {fields[2] for fields in trace_records(broker)} <= {"north"}


def test_neither_the_trace_itself_nor_what_is_sent_one_way_is_traced(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with producer(cluster, trace=True) as p:
            await p.send(TRACE_TOPIC, b"by hand")
            await p.send_one_way("T", b"hello")

    cluster.run(run)
    assert bodies(broker, TRACE_TOPIC) == [b"by hand"]


def test_the_trace_topic_may_have_another_name(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def run() -> None:
        async with producer(cluster, trace="my-trace") as p:
            await p.send("T", b"hello")

    broker.create("my-trace", 1)
    cluster.run(run)
    assert kinds(broker, "my-trace") == ["Pub"]
    assert kinds(broker) == []


@pytest.mark.parametrize(
    ("trace", "error"), [(1, ConfigError), (None, ConfigError), ("", MessageError)]
)
def test_trace_is_checked(trace: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^trace is|^the topic"):
        Producer("10.0.0.1:9876", "P", trace=trace)


def test_a_trace_that_is_refused_does_not_disturb_a_send(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with producer(cluster, trace=True) as p:
            for _ in range(3):
                await p.send("T", b"hello")
                await asyncio.sleep(2)

    def refuse_trace(request: Any) -> None:
        if request.fields["b"] == TRACE_TOPIC and len(broker.requests[SEND]) < 5:
            broker.script[SEND].append(13)

    broker.on_request = lambda request: refuse_trace(request) if request.code == SEND else None
    cluster.run(run)
    assert len(bodies(broker)) == 3
    assert kinds(broker) == ["Pub"]
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "trace not sent",
        "trace sent again",
    ]


def test_records_beyond_the_limit_are_dropped_with_one_line(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker does not answer trace messages, so the first one waits for it."""

    async def run() -> float:
        async with producer(cluster, trace=True) as p:
            await p.send("T", b"hello")
            await asyncio.sleep(LINGER_S * 2)
            for _ in range(5):
                await p.send_batch([Message("T", b"hello") for _ in range(1000)])
            began = cluster.sim.now_s
        return cluster.sim.now_s - began

    def silence(request: Any) -> None:
        if request.code == SEND and request.fields["b"] == TRACE_TOPIC:
            broker.script[SEND].append(SILENCE)

    broker.on_request = silence
    assert cluster.run(run) < 10
    assert len(bodies(broker)) == 5001
    lines = [line for line in caplog.messages if line.startswith("trace record")]
    assert lines[0].startswith("trace record dropped, too many wait: group=P")
    assert f"waiting={RECORDS_MAX}" in lines[0]
    assert len(lines) == 2
    assert lines[1].startswith("trace records not sent, the client is closed: group=P")
    assert cluster.nothing_is_left()


def test_a_trace_topic_that_no_broker_has_costs_records_only(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topics.pop(TRACE_TOPIC)
    cluster.topics.pop("TBW102")
    sends(cluster, Message("T", b"hello"))
    assert len(bodies(broker)) == 1
    (line,) = (line for line in caplog.messages if line.startswith("trace"))
    assert "no broker has topic" in line
