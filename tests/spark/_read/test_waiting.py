"""A queue that waits for its master is told of when it begins and when it ceases to."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark._read.waiting import Waiting

QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
AWAY = RuntimeError("away")


def test_each_wait_is_told_once_however_often_it_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    waiting = Waiting()
    told: list[list[str]] = []
    seen: list[Mapping[MessageQueue, Exception]] = [
        {},
        {QUEUE_1: AWAY, QUEUE_0: AWAY},
        {QUEUE_0: AWAY, QUEUE_1: RuntimeError("still away")},
        {QUEUE_1: AWAY},
        {QUEUE_0: AWAY},
        {},
    ]
    for each in seen:
        caplog.clear()
        waiting.tell(each)
        told.append([f"{record.levelname} {record.getMessage()}" for record in caplog.records])

    begin = "WARNING queue waits for its master: queue=orders@broker-a:{} error=away"
    end = "INFO queue waits no longer: queue=orders@broker-a:{}"
    assert told == [
        [],
        [begin.format(0), begin.format(1)],
        [],
        [end.format(0)],
        [begin.format(0), end.format(1)],
        [end.format(0)],
    ]
