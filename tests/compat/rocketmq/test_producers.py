"""Producers under the names of rocketmq-client-python."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from typing import Any

import pytest

from roquet import sync
from roquet.client import send_result
from roquet.compat.rocketmq.exceptions import (
    ProducerException,
    ProducerSendOnewayFailed,
    ProducerSendOrderlyFailed,
    ProducerSendSyncFailed,
    ProducerStartFailed,
)
from roquet.compat.rocketmq.messages import Message, ReceivedMessage
from roquet.compat.rocketmq.producers import (
    Producer,
    SendResult,
    SendStatus,
    TransactionMQProducer,
    TransactionStatus,
)
from roquet.dev import Cluster
from roquet.protocol.records.message import MessageQueue


def producer_of(cluster: Cluster, **options: Any) -> Producer:
    producer = Producer("shop", **options)
    producer.set_name_server_address(cluster.name_server)
    return producer


def message_of(topic: str, body: str = "tea") -> Message:
    message = Message(topic)
    message.set_body(body)
    return message


def received(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    with sync.Consumer(cluster.name_server, f"of-{topic}", topic, start="earliest") as consumer:
        return sorted(consumer.get(30_000).body for _ in range(count))


@pytest.mark.parametrize("status", send_result.SendStatus)
def test_every_status_has_a_name_here(status: send_result.SendStatus) -> None:
    result = send_result.SendResult(status, "U", "O", MessageQueue("orders", "b", 0), 7)
    is_ok = status is send_result.SendStatus.SEND_OK

    found = SendResult.of(result)
    assert found.status.name == ("OK" if is_ok else status.name)
    assert (found.msg_id, found.offset) == ("U", 7)


def test_a_message_that_nobody_answers_arrives(cluster: Cluster, topic: str) -> None:
    with producer_of(cluster) as producer:
        producer.send_oneway(message_of(topic))

        assert received(cluster, topic, 1) == [b"tea"]


def test_a_producer_may_be_started_and_shut_down_twice_and_again(
    cluster: Cluster, topic: str
) -> None:
    producer = producer_of(cluster)
    producer.shutdown()
    for _ in range(2):
        producer.start()
        producer.start()
        assert producer.send_sync(message_of(topic)).status is SendStatus.OK
        producer.shutdown()
        producer.shutdown()
        with pytest.raises(ProducerSendSyncFailed, match="does not run: call start"):
            producer.send_sync(message_of(topic))


def test_each_way_to_send_has_its_exception(cluster: Cluster, topic: str) -> None:
    empty = Message(topic)
    with producer_of(cluster) as producer:
        with pytest.raises(ProducerSendSyncFailed, match="body"):
            producer.send_sync(empty)
        with pytest.raises(ProducerSendOnewayFailed, match="body"):
            producer.send_oneway(empty)
        with pytest.raises(ProducerSendOrderlyFailed, match="body"):
            producer.send_orderly_with_sharding_key(empty, "key")
        other: Any = "a text"
        with pytest.raises(ProducerSendSyncFailed, match="msg is 'a text'"):
            producer.send_sync(other)


def test_a_body_that_is_too_large_is_refused(cluster: Cluster, topic: str) -> None:
    producer = producer_of(cluster, max_message_size=3)
    with producer:
        assert producer.send_sync(message_of(topic, "tea")).status is SendStatus.OK
        with pytest.raises(ProducerSendSyncFailed, match="max_message_size allows 3"):
            producer.send_sync(message_of(topic, "teas"))
        producer.set_max_message_size(4)
        assert producer.send_sync(message_of(topic, "teas")).status is SendStatus.OK


def test_level_0_compresses_nothing_and_all_others_do(cluster: Cluster, topic: str) -> None:
    body = "x" * 10_000
    for level in (None, 0, 9):
        with producer_of(cluster, compress_level=level) as producer:
            producer.send_sync(message_of(topic, body))
    with sync.Consumer(cluster.name_server, "levels", topic, start="earliest") as consumer:
        sizes = sorted(len(consumer.get(30_000).stored_body) for _ in range(3))

    assert sizes[1] < 1000
    assert sizes[2] == len(body)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"max_message_size": "1"}])
def test_a_setting_that_cannot_be_used_is_named_at_the_start(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    (name,) = options
    with pytest.raises(ProducerStartFailed, match=name):
        producer_of(cluster, **options).start()


# transactions


def transactions(cluster: Cluster, check: Any) -> TransactionMQProducer:
    producer = TransactionMQProducer("transactions", check)
    producer.set_name_server_address(cluster.name_server)
    producer.set_timeout(10_000)
    producer.set_compress_level(0)
    return producer


def no_check(_: ReceivedMessage) -> TransactionStatus:
    return TransactionStatus.UNKNOWN


def test_a_local_transaction_gets_the_half_message_and_its_arguments(
    cluster: Cluster, topic: str
) -> None:
    got: list[tuple[str, bytes, Any]] = []

    def execute(message: ReceivedMessage, user_args: Any) -> TransactionStatus:
        got.append((message.id, message.body, user_args))
        is_kept = message.body == b"kept"
        return TransactionStatus.COMMIT if is_kept else TransactionStatus.ROLLBACK

    with transactions(cluster, no_check) as producer:
        results = [
            producer.send_message_in_transaction(message_of(topic, body), execute, ["arg"])
            for body in ("dropped", "kept")
        ]
    assert got == [
        (results[0].msg_id, b"dropped", ["arg"]),
        (results[1].msg_id, b"kept", ["arg"]),
    ]
    assert received(cluster, topic, 1) == [b"kept"]


@pytest.mark.parametrize("outcome", [None, 7, "COMMIT", ValueError("not booked")])
def test_a_local_transaction_without_outcome_is_checked(
    cluster: Cluster, topic: str, outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    checked: SimpleQueue[str] = SimpleQueue()

    def check(message: ReceivedMessage) -> TransactionStatus:
        checked.put(message.id)
        return TransactionStatus.ROLLBACK

    def execute(message: ReceivedMessage, user_args: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with caplog.at_level(logging.ERROR), transactions(cluster, check) as producer:
        result = producer.send_message_in_transaction(message_of(topic), execute)
        assert checked.get(timeout=30) == result.msg_id
    assert "local transaction failed" in caplog.text


def test_a_check_without_outcome_is_asked_again(cluster: Cluster, topic: str) -> None:
    outcomes = iter([None, TransactionStatus.COMMIT])

    with transactions(cluster, lambda _: next(outcomes, TransactionStatus.COMMIT)) as producer:
        producer.send_message_in_transaction(
            message_of(topic), lambda message, args: TransactionStatus.UNKNOWN
        )
        assert received(cluster, topic, 1) == [b"tea"]


async def coroutine(*_: object) -> int:
    return 0


def test_functions_are_plain(cluster: Cluster, topic: str) -> None:
    function: Any = coroutine
    with pytest.raises(ProducerException, match="checker_callback is"):
        transactions(cluster, function)
    with (
        transactions(cluster, no_check) as producer,
        pytest.raises(ProducerSendSyncFailed, match="local_execute is"),
    ):
        producer.send_message_in_transaction(message_of(topic), function)
