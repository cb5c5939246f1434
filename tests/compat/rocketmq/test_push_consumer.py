"""The consumer under the names of rocketmq-client-python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from roquet import sync
from roquet.compat.rocketmq.exceptions import (
    ConsumerException,
    PushConsumerStartFailed,
    RocketMQException,
)
from roquet.compat.rocketmq.messages import ReceivedMessage
from roquet.compat.rocketmq.push_consumer import (
    ConsumeStatus,
    MessageModel,
    PushConsumer,
)
from roquet.dev import Cluster


def consumer_of(cluster: Cluster, group: str, **options: Any) -> PushConsumer:
    consumer = PushConsumer(group, **options)
    consumer.set_name_server_address(cluster.name_server)
    return consumer


def fill(cluster: Cluster, topic: str, *bodies: bytes, tags: str | None = None) -> None:
    with sync.Producer(cluster.name_server, "shop") as producer:
        for body in bodies:
            producer.send(topic, body, sharding_key="one", tags=tags)


class Deliveries:
    """What a callback got, and what it returns or raises, one after the other; then success."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)
        self._got: SimpleQueue[tuple[bytes, int]] = SimpleQueue()

    def __call__(self, message: ReceivedMessage) -> Any:
        outcome = self._outcomes.pop(0) if self._outcomes else ConsumeStatus.CONSUME_SUCCESS
        self._got.put((message.body, message.reconsume_times))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def next(self) -> tuple[bytes, int]:
        return self._got.get(timeout=30)


@pytest.mark.parametrize(
    "outcome", [ConsumeStatus.RECONSUME_LATER, 1, 7, "ok", ValueError("not booked")]
)
def test_what_is_no_success_is_delivered_again(
    cluster: Cluster, topic: str, outcome: Any, request: pytest.FixtureRequest
) -> None:
    deliveries = Deliveries(outcome)
    group = f"again-{request.node.callspec.indices['outcome']}"
    consumer = consumer_of(cluster, group)
    consumer.subscribe(topic, deliveries, group)
    with consumer:
        fill(cluster, topic, b"tea", tags=group)
        assert [deliveries.next(), deliveries.next()] == [(b"tea", 0), (b"tea", 1)]


@pytest.mark.parametrize("outcome", [None, 0, ConsumeStatus.CONSUME_SUCCESS])
def test_a_success_is_stored(cluster: Cluster, outcome: Any) -> None:
    topic = f"success-{outcome!r}".translate(str.maketrans("<>.: ", "-----"))
    cluster.create_topic(topic, 1)
    first, second = Deliveries(outcome), Deliveries()
    fill(cluster, topic, b"one")
    consumer = consumer_of(cluster, f"of-{topic}")
    consumer.subscribe(topic, first)
    with consumer:
        assert first.next() == (b"one", 0)
    fill(cluster, topic, b"two")
    consumer = consumer_of(cluster, f"of-{topic}")
    consumer.subscribe(topic, second)
    with consumer:
        assert second.next() == (b"two", 0)


def test_each_topic_has_its_callback_and_its_tags(cluster: Cluster, topic: str) -> None:
    other = f"{topic[:50]}-other"
    cluster.create_topic(other, 1)
    ours, others = Deliveries(), Deliveries()
    consumer = consumer_of(cluster, "two-topics")
    consumer.subscribe(topic, ours, b"new || paid")
    consumer.start()
    consumer.subscribe(other, others)
    fill(cluster, topic, b"old", tags="old")
    fill(cluster, topic, b"paid", tags="paid")
    fill(cluster, other, b"other")

    assert (ours.next(), others.next()) == ((b"paid", 0), (b"other", 0))
    consumer.shutdown()


def test_messages_of_a_queue_are_handled_in_order(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, b"1", b"2", b"3")
    deliveries = Deliveries(ValueError("not yet"))
    consumer = consumer_of(cluster, "in-order", orderly=True)
    consumer.subscribe(topic, deliveries)
    with consumer:
        got = [deliveries.next()[0] for _ in range(4)]

    assert got == [b"1", b"1", b"2", b"3"]


def test_callbacks_run_in_as_many_threads_as_are_set(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, b"1", b"2", b"3")
    together = threading.Barrier(4, timeout=30)

    def callback(_: ReceivedMessage) -> None:
        together.wait()

    consumer = consumer_of(cluster, "threads")
    consumer.set_thread_count(3)
    consumer.set_message_batch_max_size(8)
    consumer.subscribe(topic, callback)
    with consumer:
        together.wait()
    assert not together.broken


def test_each_member_of_a_broadcast_gets_all_messages(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    members = []
    for name in ("one", "two"):
        consumer = consumer_of(cluster, "cast", message_model=MessageModel.BROADCASTING)
        consumer.set_instance_name(name)
        deliveries = Deliveries()
        consumer.subscribe(topic, deliveries)
        consumer.start()
        members.append((consumer, deliveries))
    fill(cluster, topic, b"tea")
    for consumer, deliveries in members:
        assert deliveries.next() == (b"tea", 0)
        consumer.shutdown()

    folders = (tmp_path / ".rocketmq_offsets").iterdir()
    assert sorted(folder.name.partition("@")[2] for folder in folders) == ["one", "two"]


def test_a_consumer_may_be_started_and_shut_down_twice_and_again(
    cluster: Cluster, topic: str
) -> None:
    deliveries = Deliveries()
    consumer = consumer_of(cluster, "twice")
    consumer.subscribe(topic, deliveries)
    consumer.shutdown()
    for body in (b"one", b"two"):
        fill(cluster, topic, body)
        consumer.start()
        consumer.start()
        assert deliveries.next() == (body, 0)
        consumer.shutdown()
        consumer.shutdown()


def test_a_consumer_that_is_shut_down_at_once_leaves_nothing(cluster: Cluster, topic: str) -> None:
    consumer = consumer_of(cluster, "at-once")
    consumer.subscribe(topic, lambda _: None)
    for _ in range(5):
        consumer.start()
        consumer.shutdown()

    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"roquet-push-consumer", "roquet-sync"}


def test_a_callback_cannot_shut_its_consumer_down(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, b"tea")
    errors: SimpleQueue[str] = SimpleQueue()
    consumer = consumer_of(cluster, "from-inside")

    def callback(_: ReceivedMessage) -> None:
        with pytest.raises(ConsumerException) as raised:
            consumer.shutdown()
        errors.put(str(raised.value))

    consumer.subscribe(topic, callback)
    with consumer:
        assert "waits for the callbacks" in errors.get(timeout=30)


async def coroutine(_: ReceivedMessage) -> int:
    return 0


function: Any = coroutine


@pytest.mark.parametrize(
    ("subscribe", "text"),
    [
        (lambda consumer: consumer.subscribe("orders", function), "callback is"),
        (lambda consumer: consumer.subscribe("two words", print), "two words"),
        (lambda consumer: consumer.subscribe("orders", print, None), "expression is None"),
        (lambda consumer: consumer.set_message_model(3), "model is 3"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(
    subscribe: Callable[[PushConsumer], None], text: str
) -> None:
    with pytest.raises(RocketMQException, match=text):
        subscribe(PushConsumer("billing"))


def test_a_consumer_without_topics_or_threads_does_not_start(cluster: Cluster) -> None:
    consumer = consumer_of(cluster, "no-topics")
    with pytest.raises(PushConsumerStartFailed, match="at least one topic"):
        consumer.start()
    consumer.subscribe("orders", lambda _: None)
    consumer.set_thread_count(0)
    with pytest.raises(PushConsumerStartFailed, match="thread_count"):
        consumer.start()
