"""The blocking consumer: iteration, batches, handlers in threads, settling from any thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from roquet import CallTimeout, ClientStateError, ConfigError, ConsumeEvent, ReceivedMessage, sync
from roquet.dev import Cluster
from tests.client.hooks import DeliveriesSeen

LOOP_THREAD = "roquet-sync"


def fill(mq: sync.Client, topic: str, count: int) -> list[bytes]:
    for number in range(count):
        mq.send(topic, b"%d" % number)
    return [b"%d" % number for number in range(count)]


def consumer_of(mq: sync.Client, topic: str, *, ordered: bool = False) -> sync.Consumer:
    return mq.consumer(f"of-{topic}", topic, start="earliest", ordered=ordered)


def restarted(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """What another member of the group gets: what was not settled."""
    with sync.connect(cluster.name_server) as mq, consumer_of(mq, topic) as consumer:
        return sorted(consumer.get(30_000).body for _ in range(count))


def test_asking_for_the_next_message_acknowledges_the_one_before(
    cluster: Cluster, mq: sync.Client, topic: str
) -> None:
    sent = fill(mq, topic, 5)
    got = []
    with consumer_of(mq, topic) as consumer:
        for message in consumer:
            got.append(message.body)
            if len(got) == 5:
                break
    assert sorted(got) == sent
    assert restarted(cluster, topic, 1) == [got[-1]]


def test_what_was_handed_out_and_not_settled_is_told_at_the_close(
    mq: sync.Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(mq, topic, 2)
    with consumer_of(mq, topic) as consumer:
        consumer.get(30_000).ack()
        consumer.get(30_000)
    told = [line for line in caplog.messages if "not settled" in line]
    assert told == [
        "consumer closed, messages that it handed out were not settled, so they come again: "
        f"group=of-{topic} messages=1"
    ]


def test_with_message_acknowledges_it_and_an_exception_has_it_delivered_again(
    mq: sync.Client, topic: str
) -> None:
    fill(mq, topic, 1)
    with consumer_of(mq, topic) as consumer:
        with next(consumer) as message:
            raise ValueError("not booked")
        again = consumer.get(30_000)
        assert (again.body, again.reconsume_times) == (message.body, 1)
        with again:
            pass
        with pytest.raises(CallTimeout):
            consumer.get(1)


def test_a_batch_is_acknowledged_at_the_end_of_its_block(
    cluster: Cluster, mq: sync.Client, topic: str
) -> None:
    sent = fill(mq, topic, 6)
    got: list[bytes] = []
    with consumer_of(mq, topic) as consumer:
        while len(got) < 5:
            with consumer.batch(max_messages=1) as messages:
                got += [message.body for message in messages]
        last = consumer.get_many(10, 30_000)
        assert sorted([*got, *(message.body for message in last)]) == sent
    assert restarted(cluster, topic, 1) == [last[0].body]


def test_a_failed_batch_is_delivered_again_and_an_interrupted_one_is_not_settled(
    cluster: Cluster, mq: sync.Client, topic: str
) -> None:
    fill(mq, topic, 1)
    with consumer_of(mq, topic) as consumer:
        with consumer.batch(timeout_ms=30_000):
            raise ValueError("not booked")
        with pytest.raises(KeyboardInterrupt), consumer.batch(timeout_ms=30_000):
            raise KeyboardInterrupt
    assert restarted(cluster, topic, 1) == [b"0"]


def test_handlers_run_in_threads_and_settle_there(mq: sync.Client, topic: str) -> None:
    sent = fill(mq, topic, 8)
    threads: set[str] = set()
    together = threading.Barrier(4, timeout=30)
    bodies: list[bytes] = []

    with consumer_of(mq, topic) as consumer:

        def handle(message: ReceivedMessage) -> None:
            together.wait()
            threads.add(threading.current_thread().name)
            message.ack()
            bodies.append(message.body)
            if len(bodies) == 8:
                consumer.stop()

        consumer.run(handle, concurrency=4)
    assert sorted(bodies) == sent
    assert len(threads) == 4
    assert LOOP_THREAD not in threads


def test_an_ordered_consumer_goes_on_when_another_thread_settles(
    mq: sync.Client, topic: str
) -> None:
    with mq.producer() as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, sharding_key="one")
    with consumer_of(mq, topic, ordered=True) as consumer:
        for expected in (b"0", b"1", b"2"):
            message = consumer.get(30_000)
            assert message.body == expected
            settling = threading.Thread(target=message.ack)
            settling.start()
            settling.join()


def test_a_signal_ends_run(mq: sync.Client, topic: str) -> None:
    fill(mq, topic, 1)
    former = signal.getsignal(signal.SIGUSR1)
    with consumer_of(mq, topic) as consumer:
        consumer.run(lambda _: os.kill(os.getpid(), signal.SIGUSR1), stop_signals=[signal.SIGUSR1])
    assert signal.getsignal(signal.SIGUSR1) is former


@pytest.mark.parametrize("closed", ["Consumer", "Client"])
def test_a_handler_cannot_close_what_would_wait_for_it(
    mq: sync.Client, topic: str, closed: str
) -> None:
    fill(mq, topic, 1)
    errors: list[str] = []
    with consumer_of(mq, topic) as consumer:

        def handle(_: ReceivedMessage) -> None:
            try:
                (mq if closed == "Client" else consumer).close()
            except ClientStateError as error:
                errors.append(str(error))
            consumer.stop()

        consumer.run(handle)
        assert mq.is_open
        assert consumer.is_open
    assert errors == [
        f"close() of this {closed} waits for the callbacks of this Consumer, so none of them can "
        "call it: call it in another thread; to end a `run`, call the consumer's stop()"
    ]


async def coroutine(_: ReceivedMessage) -> None:
    pass


@pytest.mark.parametrize("handler", [coroutine, "handler"])
def test_a_handler_is_a_plain_function(
    mq: sync.Client, topic: str, handler: Callable[[ReceivedMessage], object]
) -> None:
    with consumer_of(mq, topic) as consumer, pytest.raises(ConfigError, match="handler is"):
        consumer.run(handler)


def test_closing_ends_the_iteration_of_another_thread(mq: sync.Client, topic: str) -> None:
    fill(mq, topic, 1)
    consumer = consumer_of(mq, topic).start()
    began, closed = threading.Event(), threading.Event()
    got: list[bytes] = []

    def iterate() -> None:
        for message in consumer:
            got.append(message.body)
            began.set()
            assert closed.wait(30)

    thread = threading.Thread(target=iterate)
    thread.start()
    assert began.wait(30)
    consumer.close()
    closed.set()
    thread.join(30)
    assert (got, thread.is_alive()) == ([b"0"], False)


def test_queues_are_paused_sought_and_committed(mq: sync.Client, topic: str) -> None:
    with mq.producer() as producer:
        queue = producer.queues(topic)[0]
        producer.send(topic, b"0", queue=queue)
    with consumer_of(mq, topic) as consumer:
        consumer.get(30_000).ack()
        assert queue in consumer.assigned()
        consumer.pause(queue)
        assert consumer.paused() == {queue}
        consumer.resume()
        consumer.commit()
        assert consumer.committed(queue) == 1
        assert consumer.lag()[queue] == 0
        consumer.seek(queue, 0)
        assert consumer.position(queue) == 0
        assert consumer.get(30_000).body == b"0"
    for use in (consumer.assigned, consumer.paused, consumer.subscriptions):
        with pytest.raises(ClientStateError, match="this Consumer was closed: create a new one"):
            use()


def test_where_a_group_begins_may_be_given_without_the_name(mq: sync.Client, topic: str) -> None:
    mq.send(topic, b"0")
    with mq.consumer("begin", topic, "earliest") as consumer:
        assert consumer.get(30_000).body == b"0"


class Blocks(DeliveriesSeen):
    """Also records in which threads blocks are."""

    def __init__(self) -> None:
        super().__init__()
        self.in_block: list[str] = []
        self.told_in: set[str] = set()

    def handling(self, _event: ConsumeEvent) -> AbstractContextManager[object]:
        return self._block()

    @contextmanager
    def _block(self) -> Iterator[None]:
        self.in_block.append(threading.current_thread().name)
        yield

    def after_consume(self, event: ConsumeEvent) -> None:
        super().after_consume(event)
        self.told_in.add(threading.current_thread().name)


def test_hooks_are_told_in_the_loop_of_what_threads_settle(cluster: Cluster, topic: str) -> None:
    def handle(message: ReceivedMessage) -> None:
        message.ack()
        consumer.stop()

    blocks = Blocks()
    with sync.connect(cluster.name_server, hooks=[blocks]) as mq:
        fill(mq, topic, 4)
        with consumer_of(mq, topic) as consumer:
            consumer.get().ack()
            with consumer.get():
                pass
            with consumer.get():
                raise ValueError("not booked")
            consumer.run(handle)
    assert blocks.outcomes() == ["acknowledged", "acknowledged", "failed", "acknowledged"]
    assert blocks.told_in == {LOOP_THREAD}
    assert blocks.in_block == [threading.current_thread().name] * 2 + [LOOP_THREAD]
