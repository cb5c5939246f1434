"""What administrators ask of a member of a group."""

from __future__ import annotations

import pytest

from roquet.client._net.member_calls import (
    QueueState,
    reset_offsets,
    running_info_body,
    status_body,
)
from roquet.errors import PeerError
from roquet.protocol.bodies.tables import ConsumerData, Subscription
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import MessageQueue

QUEUES = {MessageQueue("T", "broker-a", 1): 6, MessageQueue("T", "broker-a", 0): 5}


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:6,{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}',
        b'{"offsetTable":[{"brokerName":"broker-a","offset":6,"queueId":1,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":5,"queueId":0,"topic":"T"}]}',
    ],
)
def test_both_forms_of_a_reset_are_understood(body: bytes) -> None:
    assert reset_offsets(body) == QUEUES


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"offsetTable":5}', b'{"offsetTable":{"x":1}}']
)
def test_what_is_no_table_of_offsets_breaks_the_protocol(body: bytes) -> None:
    with pytest.raises(PeerError):
        reset_offsets(body)


def test_the_status_is_written_as_java_reads_it() -> None:
    states = {queue: QueueState(offset, offset, 0, 0, 0, 0) for queue, offset in QUEUES.items()}
    states[MessageQueue("U", "broker-a", 0)] = QueueState(9, 9, 0, 0, 0, 0)
    assert status_body(states, "T") == (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:6}}'
    )


def test_running_info_tells_what_waits_in_each_queue() -> None:
    data = ConsumerData("G", subscriptions=(Subscription("T", "a||b", 17),))
    states = {MessageQueue("T", "broker-a", 1): QueueState(6, 9, 3, 5 << 20, 170, 180)}
    document = load(running_info_body(data, states, {"PROP_CONSUMEORDERLY": "true"}, {}))
    ((key, queue),) = document["mqTable"].items()
    assert load(key) == {"brokerName": "broker-a", "queueId": 1, "topic": "T"}
    assert (queue["cachedMsgCount"], queue["cachedMsgMinOffset"], queue["cachedMsgMaxOffset"]) == (
        3,
        6,
        9,
    )
    assert (queue["cachedMsgSizeInMiB"], queue["commitOffset"], queue["droped"]) == (5, 6, False)
    assert (queue["lastPullTimestamp"], queue["lastConsumeTimestamp"]) == (170, 180)
    assert [subscription["subString"] for subscription in document["subscriptionSet"]] == ["a||b"]
    assert document["properties"]["PROP_CONSUMEORDERLY"] == "true"
    assert document["properties"]["consumerGroup"] == "G"
    assert "jstack" not in document


def test_a_message_that_is_consumed_in_order_is_not_among_the_cached_ones() -> None:
    state = QueueState(6, 9, 3, 0, 170, 180, consuming=1, locked_ms=160, is_locked=True)
    json = state.to_json()
    assert (json["cachedMsgCount"], json["transactionMsgCount"]) == (2, 1)
    assert (json["transactionMsgMinOffset"], json["transactionMsgMaxOffset"]) == (6, 6)
    assert (json["locked"], json["lastLockTimestamp"], json["tryUnlockTimes"]) == (True, 160, 0)
    alone = QueueState(6, 6, 1, 0, 0, 0, consuming=1, is_dropped=True).to_json()
    assert (alone["cachedMsgCount"], alone["cachedMsgMinOffset"]) == (0, 0)
    assert (alone["droped"], alone["tryUnlockTimes"]) == (True, 1)


def test_stacks_are_there_if_they_were_asked_for() -> None:
    assert load(running_info_body(ConsumerData("G"), {}, {}, {}, "main"))["jstack"] == "main"
