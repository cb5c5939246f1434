"""The life of a blocking client, and who may use it."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from roquet import (
    ClientStateError,
    ConnectionClosed,
    Message,
    ReceivedMessage,
    ResponseError,
    RouteNotFound,
    TransactionState,
    sync,
)
from roquet.dev import Cluster
from roquet.protocol.remoting.codes import RequestCode

LOOP_THREAD = "roquet-sync"


def loop_threads() -> int:
    return sum(thread.name == LOOP_THREAD for thread in threading.enumerate())


def test_the_open_clients_share_one_thread_and_the_last_one_ends_it(cluster: Cluster) -> None:
    with sync.connect(cluster.name_server) as mq:
        with sync.Producer(cluster.name_server, "P"), mq.producer(), mq.pull_consumer():
            assert loop_threads() == 1
        assert loop_threads() == 1
    assert loop_threads() == 0
    with sync.connect(cluster.name_server):
        assert loop_threads() == 1
    assert loop_threads() == 0


def test_threads_send_at_the_same_time(mq: sync.Client, topic: str) -> None:
    with mq.producer() as producer:

        def send() -> None:
            for _ in range(20):
                producer.send(topic, b"x")

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with mq.pull_consumer() as reader:
        assert sum(reader.max_offset(queue) for queue in reader.queues(topic)) == 160


def test_what_comes_from_a_client_is_closed_with_it(cluster: Cluster) -> None:
    with sync.connect(cluster.name_server) as mq:
        producer = mq.producer().start()
    assert not producer.is_open
    with pytest.raises(ClientStateError, match="this Producer was closed: create a new one"):
        producer.send("T", b"1")
    producer.close()


def test_a_client_is_used_between_start_and_close(cluster: Cluster) -> None:
    mq = sync.connect(cluster.name_server)
    with pytest.raises(ClientStateError, match=r"not started: use `with roquet\.sync\.connect\("):
        mq.send("T", b"1")
    with pytest.raises(ClientStateError, match="was not started"):
        mq.producer().start()
    with mq:
        with pytest.raises(ClientStateError, match="was started before"):
            mq.start()
        assert mq.is_open
    mq.close()
    with pytest.raises(ClientStateError, match="was closed: create a new one"):
        mq.send("T", b"1")
    with pytest.raises(ClientStateError, match="was started before"):
        mq.start()


def test_a_client_that_was_closed_unused_cannot_be_started(cluster: Cluster) -> None:
    mq = sync.connect(cluster.name_server)
    mq.close()
    with pytest.raises(ClientStateError, match="was started before"):
        mq.start()


def test_a_start_that_fails_leaves_no_thread() -> None:
    with pytest.raises(ConnectionClosed):
        sync.connect("127.0.0.1:1").start()
    for thread in threading.enumerate():
        if thread.name == LOOP_THREAD:
            thread.join(30)
    assert loop_threads() == 0


async def test_a_running_event_loop_is_not_held_up(cluster: Cluster) -> None:
    mq = sync.connect(cluster.name_server)
    with pytest.raises(ClientStateError, match="use the asyncio client, `roquet"):
        mq.start()
    await asyncio.to_thread(mq.start)
    with pytest.raises(ClientStateError, match="use the asyncio client"):
        mq.send("T", b"1")
    with pytest.raises(ClientStateError, match="use the asyncio client"):
        mq.close()
    await asyncio.to_thread(mq.close)


async def test_cells_of_a_notebook_may_block(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = SimpleNamespace(IPKernelApp=SimpleNamespace(initialized=lambda: True))
    monkeypatch.setitem(__import__("sys").modules, "ipykernel.kernelapp", kernel)
    with sync.connect(cluster.name_server) as mq:
        assert mq.is_open


def test_errors_are_those_of_the_asyncio_client(mq: sync.Client) -> None:
    with mq.pull_consumer() as reader, pytest.raises(RouteNotFound):
        reader.queues("nowhere")
    with mq.admin() as admin:
        (broker,) = admin.brokers().values()
        with pytest.raises(ResponseError):
            admin.ask(broker.addresses[0], RequestCode.QUERY_CONSUMER_OFFSET, {})


def test_a_local_transaction_runs_in_the_thread_of_the_caller_and_a_check_in_another(
    mq: sync.Client, topic: str
) -> None:
    checked: list[str] = []
    ran: list[str] = []

    def check(_: ReceivedMessage) -> TransactionState:
        checked.append(threading.current_thread().name)
        return TransactionState.COMMIT

    def local(message: Message, transaction_id: str) -> TransactionState:
        assert message.topic == topic
        assert transaction_id
        ran.append(threading.current_thread().name)
        return TransactionState.UNKNOWN

    with mq.transaction_producer("T-P", check, topics=[topic]) as producer:
        result = producer.send_in_transaction(Message(topic, b"half"), local)
        assert (result.state, result.confirmed) == (TransactionState.UNKNOWN, False)
        with mq.consumer("T-G", topic, start="earliest") as consumer:
            assert consumer.get(30_000).body == b"half"
    assert ran == [threading.current_thread().name]
    assert set(checked) == {"roquet-check-1"}


def test_an_error_of_a_local_transaction_is_raised_by_the_send(mq: sync.Client, topic: str) -> None:
    def local(_: Message, __: str) -> TransactionState:
        raise ZeroDivisionError

    def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.ROLLBACK

    with mq.transaction_producer("T-E", check) as producer, pytest.raises(ZeroDivisionError):
        producer.send_in_transaction(Message(topic, b"half"), local)


def test_a_request_gets_its_reply(mq: sync.Client, topic: str) -> None:
    with mq.consumer("R-G", topic, start="earliest") as consumer, mq.producer() as producer:

        def answer() -> None:
            with consumer.get(30_000) as request:
                producer.reply(request, request.body + b"!")

        thread = threading.Thread(target=answer)
        thread.start()
        assert mq.request(Message(topic, b"hello"), timeout_ms=30_000).body == b"hello!"
        thread.join()


def test_a_client_sends_in_all_the_ways_of_a_producer(mq: sync.Client, topic: str) -> None:
    results = mq.send_batch(Message(topic, b"%d" % n) for n in range(2))
    mq.send_one_way(topic, b"2")
    mq.flush()
    with mq.consumer("W-G", topic, start="earliest") as consumer:
        assert sorted(consumer.get(30_000).body for _ in range(3)) == [b"0", b"1", b"2"]
    assert len(results) == 2
