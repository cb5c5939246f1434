"""A blocking consumer tells a listener with plain functions of its queues."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import roquet
from roquet import ClientStateError, ConfigError, MessageQueue, sync


class Offsets(sync.RebalanceListener):
    """Seeks in the queues that come, commits those that go, and notes the calls."""

    def __init__(self) -> None:
        self.consumer: sync.Consumer
        self.begin_at = 0
        self.assigned: set[MessageQueue] = set()
        self.revoked: set[MessageQueue] = set()
        self.threads: set[str] = set()
        self.refusals: list[str] = []

    def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
        self.threads.add(threading.current_thread().name)
        self.assigned |= queues
        for queue in queues:
            if not queue.topic.startswith("%RETRY%"):
                self.consumer.seek(queue, self.begin_at)
        for use in (
            self.consumer.close,
            lambda: self.consumer.subscribe("more"),
            lambda: self.consumer.unsubscribe("more"),
        ):
            try:
                use()
            except ClientStateError as error:
                self.refusals.append(str(error))

    def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:
        self.revoked |= queues
        self.consumer.commit()


def fill(mq: sync.Client, topic: str) -> list[MessageQueue]:
    with mq.producer() as producer:
        queues = producer.queues(topic)
        for number in range(3):
            producer.send(topic, b"%d" % number, queue=queues[0])
    return queues


def test_it_seeks_and_commits_in_a_thread_of_its_own(mq: sync.Client, topic: str) -> None:
    queues, listener = fill(mq, topic), Offsets()
    listener.begin_at = 1
    listener.consumer = mq.consumer("Seek", topic, "earliest", auto_commit=False, listener=listener)
    with listener.consumer as consumer:
        for body in (b"1", b"2"):
            with consumer.get(30_000) as message:
                assert message.body == body
        assert set(queues) <= listener.assigned
        assert threading.current_thread().name not in listener.threads
        assert all(name.startswith("roquet-handler") for name in listener.threads)
    assert set(queues) <= listener.revoked
    with mq.pull_consumer() as reader:
        assert reader.committed("Seek", queues[0]) == 3


def test_it_is_told_what_it_may_not_wait_for(mq: sync.Client, topic: str) -> None:
    fill(mq, topic)
    listener = Offsets()
    listener.consumer = mq.consumer("Refused", topic, "earliest", listener=listener)
    with listener.consumer as consumer:
        consumer.get(30_000).ack()
        assert consumer.is_open
        consumer.subscribe(topic, "new")  # outside of the listener it may
    close, subscribe, unsubscribe = listener.refusals[:3]
    assert close.startswith("close() of this Consumer waits for the callbacks")
    for method, refusal in (("subscribe", subscribe), ("unsubscribe", unsubscribe)):
        assert refusal == (
            f"{method}() waits for the rebalance listener, so the listener cannot wait for it: "
            "call it in a thread that the listener does not join"
        )


def test_its_errors_are_logged_with_its_name(
    mq: sync.Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(sync.RebalanceListener):
        def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
            raise ZeroDivisionError

    fill(mq, topic)
    with mq.consumer("Broken", topic, "earliest", listener=Broken()) as consumer:
        consumer.get(30_000).ack()
    (line,) = [each for each in caplog.messages if "rebalance listener failed" in each]
    assert "method=Broken.queues_assigned" in line


class Asynchronous(roquet.RebalanceListener):
    pass


class Mixed(sync.RebalanceListener):
    async def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("listener", "told"),
    [
        (7, "listener is 7: give an object of a subclass of roquet.sync.RebalanceListener"),
        (Asynchronous(), "give an object of a subclass of roquet.sync.RebalanceListener"),
        (Mixed(), "Mixed.queues_assigned of listener is .*: give a plain function"),
    ],
)
def test_what_is_no_blocking_listener_is_refused(listener: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        sync.Consumer("ns:9876", "G", "T", listener=listener)


def test_a_blocking_listener_is_none_of_the_asyncio_client() -> None:
    listener: Any = Offsets()
    with pytest.raises(ConfigError, match="give an object of a subclass of RebalanceListener"):
        roquet.Consumer("ns:9876", "G", "T", listener=listener)
