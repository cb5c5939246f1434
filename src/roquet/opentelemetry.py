"""OpenTelemetry for clients: spans, trace context in messages, metrics. `roquet[opentelemetry]`.

May import: client, protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from roquet.client.hook import ConsumeEvent, ConsumeOutcome, Hook, SendEvent
from roquet.client.received import ReceivedMessage
from roquet.common.extras import needed_by
from roquet.protocol.records.message import Message

with needed_by("roquet.opentelemetry"):
    from opentelemetry import propagate
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider, get_meter
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
        use_span,
    )

__all__ = ["OpenTelemetryHook", "context_of"]

Attributes: TypeAlias = dict[str, str | int | tuple[str, ...]]

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""What the semantic conventions advise."""
_SEND: Final = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
_PROCESS: Final = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
_FAILED: Final = frozenset((ConsumeOutcome.FAILED, ConsumeOutcome.EXPIRED))


class OpenTelemetryHook(Hook):
    """Spans and metrics of sends and deliveries, by the semantic conventions for messaging.

        async with roquet.connect("127.0.0.1:9876", hooks=[OpenTelemetryHook()]) as mq:
            ...

    A send is a span `send TOPIC`. Its context travels in the properties of the messages
    (`traceparent`, and what else the global propagator writes), and replaces what they had. A
    delivery is a span `process TOPIC`, until the message is settled; its parent is the send's span,
    to which it has a link, too. An `async with message` block or a handler of `Consumer.run` has
    that span as the current one.

    :param tracer_provider: None: the global one.
    :param meter_provider: None: the global one.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._tracer = get_tracer("roquet", tracer_provider=tracer_provider)
        meter = get_meter("roquet", meter_provider=meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a send was made for."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered."
        )
        self._send_s = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "The time of sends, with all tries.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self._process_s = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "The time from the delivery of a message until it is settled.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )

    def before_send(self, event: SendEvent) -> None:
        first = event.messages[0]
        attributes: Attributes = {
            **_common(_SEND, first.topic),
            "messaging.client.id": event.client_id,
            "messaging.rocketmq.client_group": event.group,
        }
        if len(event.messages) > 1:
            attributes["messaging.batch.message_count"] = len(event.messages)
        else:
            attributes |= _of_message(first, first.key_list)
            attributes["messaging.message.body.size"] = len(first.body)
        span = self._tracer.start_span(
            f"send {first.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        event.notes[self] = span
        carrier: dict[str, str] = {}
        with use_span(span, end_on_exit=False):
            propagate.inject(carrier)
        event.add_properties(carrier)

    def after_send(self, event: SendEvent) -> None:
        failed = _error_of(event.error)
        measured = {**_common(_SEND, event.messages[0].topic), **failed}
        self._sent.add(len(event.messages), measured)
        self._send_s.record(event.latency_ms / 1000, measured)
        span: Span | None = event.notes.get(self)
        if span is None:
            return
        if event.results:
            queue = event.results[0].queue
            span.set_attribute("messaging.destination.partition.id", str(queue.queue_id))
            if len(event.results) == 1:
                span.set_attribute("messaging.message.id", event.results[0].message_id)
        _end(span, failed, event.error)

    def before_consume(self, event: ConsumeEvent) -> None:
        message = event.message
        measured = _common(_PROCESS, message.topic, event.group)
        self._consumed.add(1, measured)
        parent = context_of(message)
        sent = get_current_span(parent).get_span_context()
        event.notes[self] = self._tracer.start_span(
            f"process {message.topic}",
            parent,
            SpanKind.CONSUMER,
            {
                **measured,
                "messaging.client.id": event.client_id,
                "messaging.message.id": message.message_id,
                "messaging.message.body.size": len(message.body),
                "messaging.destination.partition.id": str(message.queue.queue_id),
                **_of_message(message, message.keys),
            },
            links=[Link(sent)] if sent.is_valid else (),
        )

    def handling(self, event: ConsumeEvent) -> AbstractContextManager[object] | None:
        span: Span | None = event.notes.get(self)
        if span is None:
            return None
        block: AbstractContextManager[object] = use_span(
            span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        return block

    def after_consume(self, event: ConsumeEvent) -> None:
        failed = _error_of(event.error)
        if not failed and event.outcome in _FAILED:
            failed = {"error.type": event.outcome.value}
        measured = {**_common(_PROCESS, event.message.topic, event.group), **failed}
        self._process_s.record(event.latency_ms / 1000, measured)
        span: Span | None = event.notes.get(self)
        if span is not None:
            _end(span, failed, event.error)


def context_of(message: ReceivedMessage) -> Context:
    """The context of the send of a message, for spans of messages that are not from a `Consumer`.

    It is the current context if the message has none.
    """
    return propagate.extract(message.properties)


def _common(operation: Mapping[str, str], topic: str, group: str | None = None) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "rocketmq",
        **operation,
        "messaging.destination.name": topic,
    }
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    return attributes


def _of_message(message: Message | ReceivedMessage, keys: tuple[str, ...]) -> Attributes:
    attributes: Attributes = {}
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if keys:
        attributes["messaging.rocketmq.message.keys"] = keys
    return attributes


def _error_of(error: BaseException | None) -> dict[str, str]:
    return {} if error is None else {"error.type": type(error).__qualname__}


def _end(span: Span, failed: Mapping[str, str], error: BaseException | None) -> None:
    if failed:
        span.set_attributes(failed)
        span.set_status(Status(StatusCode.ERROR, None if error is None else str(error)))
    span.end()
