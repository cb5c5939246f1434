"""What the trace topic of a scripted broker has."""

from __future__ import annotations

from dataclasses import replace

from roquet.protocol.records.compression import plain_body
from roquet.protocol.records.message import TRACE_TOPIC
from roquet.protocol.records.record import Record
from tests.client.cluster import FakeBroker


def trace_messages(broker: FakeBroker, topic: str = TRACE_TOPIC) -> list[Record]:
    """The messages of the trace, with plain bodies."""
    return [
        replace(record, body=plain_body(record.body, record.sys_flag))
        for key in sorted(broker.log.queues)
        if key[0] == topic
        for record in broker.log.queues[key]
    ]


def trace_records(broker: FakeBroker, topic: str = TRACE_TOPIC) -> list[list[str]]:
    """The fields of each record, in the order in which the records were stored."""
    return [
        record.split("\x01")
        for message in trace_messages(broker, topic)
        for record in message.body.decode().removesuffix("\x02").split("\x02")
    ]
