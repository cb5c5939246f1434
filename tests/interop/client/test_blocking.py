"""The client for code without an event loop: the main lines of the other modules once more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from roquet import (
    CallTimeout,
    ClientStateError,
    Message,
    MessageError,
    PullStatus,
    ReceivedMessage,
    TransactionState,
    sync,
)
from tests.interop.client.target import TIMEOUT_MS, Target, bodies, numbers
from tests.interop.processes import wait_until
from tests.interop.taken import CONSUME_SECONDS

pytestmark = pytest.mark.interop

WAIT_MS = CONSUME_SECONDS * 1000


def take(consumer: sync.Consumer, count: int) -> list[ReceivedMessage]:
    """The next so many messages, all acknowledged."""
    found = []
    for _ in range(count):
        message = consumer.get(WAIT_MS)
        message.ack()
        found.append(message)
    return found


def test_blocking_code_sends_and_consumes(target: Target, topic: str, group: str) -> None:
    with (
        sync.Producer(target.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        sync.Consumer(target.namesrv, group, topic, start="earliest") as consumer,
    ):
        sent = producer.send(topic, b"one", tags="A", keys="k", properties={"color": "red"})
        producer.send_batch([Message(topic, body) for body in numbers(3)])
        producer.send_one_way(topic, b"one way")
        found = take(consumer, 5)
    assert bodies(found) == [b"one", *numbers(3), b"one way"]
    assert (found[0].message_id, found[0].tags, found[0].keys) == (sent.message_id, "A", ("k",))


def test_asking_for_the_next_message_in_blocking_code_acknowledges_the_one_before(
    target: Target, topic: str, group: str
) -> None:
    with sync.connect(target.namesrv) as mq:
        for body in numbers(3):
            mq.send(topic, body)
        with mq.consumer(group, topic, start="earliest") as consumer:
            for message in consumer:
                if message.body == b"2":
                    break
        with mq.consumer(group, topic, start="earliest") as consumer:
            assert bodies(take(consumer, 1)) == [b"2"]


def test_a_message_that_fails_in_blocking_code_comes_again(
    target: Target, topic: str, group: str
) -> None:
    with sync.connect(target.namesrv) as mq:
        mq.send(topic, b"one")
        with mq.consumer(group, topic, start="earliest") as consumer:
            consumer.get(WAIT_MS).retry()
            (again,) = take(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"one", 1)


def test_threads_share_a_blocking_producer(target: Target, wide: str) -> None:
    with (
        sync.Producer(target.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        ThreadPoolExecutor(8) as threads,
    ):
        results = list(threads.map(lambda body: producer.send(wide, body), numbers(100)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 100


def test_a_handler_of_blocking_code_runs_until_the_consumer_is_stopped(
    target: Target, topic: str, group: str
) -> None:
    seen: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 10:
            consumer.stop()

    with sync.connect(target.namesrv) as mq:
        for body in numbers(10):
            mq.send(topic, body)
        with mq.consumer(group, topic, start="earliest") as consumer:
            consumer.run(handle)
    assert seen == numbers(10)


def test_blocking_code_requests_and_replies(target: Target, topic: str, group: str) -> None:
    with (
        sync.Producer(target.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        sync.Consumer(target.namesrv, group, topic, start="earliest") as consumer,
    ):

        def answer() -> None:
            (question,) = take(consumer, 1)
            producer.reply(question, question.body + b"!")

        answering = threading.Thread(target=answer)
        answering.start()
        assert producer.request(Message(topic, b"hello"), timeout_ms=TIMEOUT_MS).body == b"hello!"
        answering.join()


def test_blocking_code_commits_and_rolls_back(target: Target, topic: str, group: str) -> None:
    states = {b"yes": TransactionState.COMMIT, b"no": TransactionState.ROLLBACK}
    with (
        sync.TransactionProducer(
            target.namesrv, f"P-{topic}", lambda message: TransactionState.UNKNOWN
        ) as producer,
        sync.Consumer(target.namesrv, group, topic, start="earliest") as consumer,
    ):
        for body in (b"no", b"yes"):
            result = producer.send_in_transaction(
                Message(topic, body), lambda message, _: states[message.body]
            )
            assert (result.state, result.confirmed) == (states[body], True)
        assert bodies(take(consumer, 1)) == [b"yes"]


def test_blocking_code_reads_queues_by_offset(target: Target, topic: str, group: str) -> None:
    with sync.connect(target.namesrv) as mq, mq.pull_consumer() as reader:
        for body in numbers(5):
            mq.send(topic, body)
        (queue,) = reader.queues(topic)
        wait_until(lambda: reader.max_offset(queue) == 5, "entries of all messages")
        found = reader.pull(queue, 2)
        reader.commit(group, queue, 3)
        assert reader.committed(group, queue) == 3
    assert (found.status, bodies(found.messages)) == (PullStatus.FOUND, numbers(3, 2))


def test_blocking_code_is_told_what_cannot_be(target: Target, topic: str, group: str) -> None:
    with sync.connect(target.namesrv) as mq:
        with pytest.raises(MessageError):
            mq.send("no blanks allowed", b"x")
        with (
            mq.consumer(group, topic) as consumer,
            pytest.raises(CallTimeout, match="no message"),
        ):
            consumer.get(timeout_ms=100)
    with pytest.raises(ClientStateError):
        mq.send(topic, b"closed")
