"""Spans, trace context and metrics from a producer to a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the group dev installs it")


from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from roquet.client.pull_consumer import PullConsumer
from roquet.client.received import ReceivedMessage
from roquet.errors import ResponseError
from roquet.opentelemetry import OpenTelemetryHook, context_of
from roquet.protocol.records.message import Message, MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import consumer
from tests.client.producers import producer
from tests.simulation.simulation import Simulation


class Exported:
    """A hook, and what it exports."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracing = TracerProvider(shutdown_on_exit=False)
        tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        metering = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = tracing.get_tracer("test")
        self.hook = OpenTelemetryHook(tracing, metering)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def counts(self) -> dict[tuple[str, Any], Any]:
        """Metric and type of error -> number of messages or of times measured."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            (metric.name, (point.attributes or {}).get("error.type")): getattr(
                point, "count", getattr(point, "value", None)
            )
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def exported() -> Exported:
    return Exported()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with Simulation("opentelemetry") as sim:
        yield FakeCluster(sim)


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    return cluster.broker()


SENT, SEND_S = "messaging.client.sent.messages", "messaging.client.operation.duration"
CONSUMED, PROCESS_S = "messaging.client.consumed.messages", "messaging.process.duration"


def test_a_message_without_room_for_the_context_is_sent_without_it(
    cluster: FakeCluster, broker: FakeBroker, exported: Exported
) -> None:
    async def work() -> None:
        async with producer(cluster, hooks=[exported.hook]) as p:
            await p.send("T", b"full", properties={"a": "x" * 32_600})

    broker.create("T", 1)
    cluster.run(work)
    assert len(exported.spans("send T")) == 1
    assert exported.counts()[SENT, None] == 1


def test_a_trace_goes_from_the_sender_to_the_handler(
    cluster: FakeCluster, broker: FakeBroker, exported: Exported
) -> None:
    current: list[int] = []

    async def work() -> None:
        async with (
            producer(cluster, hooks=[exported.hook]) as p,
            consumer(cluster, hooks=[exported.hook]) as c,
        ):
            with exported.tracer.start_as_current_span("order"):
                result = await p.send("T", b"abc", tags="new", keys=("k1", "k2"))
            ids.append(result.message_id)

            async def handle(_message: ReceivedMessage) -> None:
                await asyncio.sleep(0.1)
                current.append(get_current_span().get_span_context().span_id)
                c.stop()

            await c.run(handle)

    ids: list[str] = []
    broker.create("T", 1)
    cluster.run(work)
    (order,), (sent,), (processed,) = map(exported.spans, ("order", "send T", "process T"))
    assert sent.parent is not None
    assert sent.parent.span_id == order.context.span_id
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
    assert processed.context.trace_id == order.context.trace_id
    assert current == [processed.context.span_id]
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    both = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "10.0.9.1@test",
        "messaging.message.id": ids[0],
        "messaging.message.body.size": 3,
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
    }
    assert dict(sent.attributes or {}) == {
        **both,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.rocketmq.client_group": "P",
    }
    assert dict(processed.attributes or {}) == {
        **both,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "G",
    }
    assert exported.counts() == {
        (SENT, None): 1,
        (SEND_S, None): 1,
        (CONSUMED, None): 1,
        (PROCESS_S, None): 1,
    }


def test_failures_are_errors_of_their_spans(
    cluster: FakeCluster, broker: FakeBroker, exported: Exported
) -> None:
    async def work() -> None:
        async with (
            producer(cluster, hooks=[exported.hook]) as p,
            consumer(cluster, hooks=[exported.hook]) as c,
        ):
            broker.script[RequestCode.SEND_MESSAGE_V2] = [ResponseCode.MESSAGE_ILLEGAL]
            with pytest.raises(ResponseError):
                await p.send("T", b"1")
            await p.send("T", b"2")
            async with await c.get():
                raise ValueError("of the handler")

    broker.create("T", 1)
    cluster.run(work)
    statuses = [span.status.status_code for span in exported.spans("send T")]
    assert statuses == [StatusCode.ERROR, StatusCode.UNSET]
    (processed,) = exported.spans("process T")
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.status.description == "of the handler"
    counts = exported.counts()
    assert counts[SENT, "ResponseError"] == counts[SENT, None] == 1
    assert counts[PROCESS_S, "ValueError"] == 1


def test_the_messages_of_a_batch_have_the_context_of_its_send(
    cluster: FakeCluster, broker: FakeBroker, exported: Exported
) -> None:
    async def work() -> list[int]:
        async with (
            producer(cluster, hooks=[exported.hook]) as p,
            PullConsumer(NAME_SERVER) as reader,
        ):
            await p.send_batch([Message("T", b"1"), Message("T", b"2")])
            pulled = await reader.pull(MessageQueue("T", "broker-a", 0), 0)
            contexts = [get_current_span(context_of(each)) for each in pulled.messages]
            return [context.get_span_context().span_id for context in contexts]

    broker.create("T", 1)
    spans = cluster.run(work)
    (sent,) = exported.spans("send T")
    assert spans == [sent.context.span_id] * 2
    assert (sent.attributes or {})["messaging.batch.message_count"] == 2
    assert exported.counts()[SENT, None] == 2


def test_a_message_without_a_context_begins_a_trace(
    cluster: FakeCluster, broker: FakeBroker, exported: Exported
) -> None:
    async def work() -> None:
        async with consumer(cluster, hooks=[exported.hook]) as c:
            (await c.get()).retry()
            (await c.get()).ack()

    broker.create("T", 1)
    broker.store("T", 0, b"1")
    broker.store("T", 0, b"2", "traceparent\x01nonsense\x02")
    cluster.run(work)
    for span in exported.spans("process T"):
        assert (span.parent, list(span.links)) == (None, [])
