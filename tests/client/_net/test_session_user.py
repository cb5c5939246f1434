"""The life of a client: started once, closed once, used in between and in one event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import roquet
from roquet import (
    CallTimeout,
    ClientStateError,
    ConnectionClosed,
    Message,
    MessageQueue,
    RoquetError,
)
from roquet.admin.cluster import AdminClient
from roquet.client._net.session_user import SessionUser
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.pull_consumer import PullConsumer
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.cluster import Client
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import fill

QUEUE = MessageQueue("T", "broker-a", 0)


async def check(_: object) -> TransactionState:
    return TransactionState.COMMIT


async def local(_: Message, __: str) -> TransactionState:
    return TransactionState.COMMIT


KINDS: dict[str, Callable[..., Any]] = {
    "Client": Client,
    "Producer": lambda server, **options: Producer(server, "P", **options),
    "TransactionProducer": lambda server, **options: TransactionProducer(
        server, "P", check, **options
    ),
    "Consumer": lambda server, **options: Consumer(server, "G", "T", **options),
    "PullConsumer": PullConsumer,
    "AdminClient": AdminClient,
}
every_kind = pytest.mark.parametrize("kind", KINDS)

USES: dict[str, list[Callable[[Any], Any]]] = {
    "Client": [
        lambda c: c.send("T", b"1"),
        lambda c: c.request(Message("T", b"1")),
        lambda c: c.producer().start(),
        lambda c: c.consumer("G", "T").start(),
        lambda c: c.admin().start(),
    ],
    "Producer": [
        lambda c: c.send("T", b"1"),
        lambda c: c.send_batch([Message("T", b"1")]),
        lambda c: c.send_one_way("T", b"1"),
        lambda c: c.request(Message("T", b"1")),
        lambda c: c.queues("T"),
    ],
    "TransactionProducer": [lambda c: c.send_in_transaction(Message("T", b"1"), local)],
    "Consumer": [lambda c: c.get_many(), aiter],
    "PullConsumer": [
        lambda c: c.topics(),
        lambda c: c.own_topics(),
        lambda c: c.queues("T"),
        lambda c: c.min_offset(QUEUE),
        lambda c: c.max_offset(QUEUE),
        lambda c: c.offset_at(QUEUE, 0),
        lambda c: c.committed("G", QUEUE),
        lambda c: c.commit("G", QUEUE, 1),
        lambda c: c.pull(QUEUE, 0),
        lambda c: c.pull_all(QUEUE, [0]),
    ],
    "AdminClient": [lambda c: c.brokers(), lambda c: c.ask("10.0.0.1:1", 28)],
}


async def used(use: Callable[[Any], Any], client: SessionUser) -> None:
    result = use(client)
    if isinstance(result, Awaitable):
        await result


def client_of(cluster: FakeCluster, kind: str, server: Any = NAME_SERVER) -> Any:
    runtime = cluster.client.runtime() if cluster.client.is_running else None
    return KINDS[kind](server, client_id=f"{CLIENT}@test", runtime=runtime)


@every_kind
def test_a_client_that_was_not_started_says_so(
    cluster: FakeCluster, broker: FakeBroker, kind: str
) -> None:
    async def run() -> None:
        client = client_of(cluster, kind)
        for use in USES[kind]:
            with pytest.raises(ClientStateError, match=rf"this {kind} was not started: use `async"):
                await used(use, client)

    cluster.run(run)


@every_kind
def test_a_closed_client_says_so_and_cannot_be_started_again(
    cluster: FakeCluster, broker: FakeBroker, kind: str
) -> None:
    async def run() -> None:
        client = client_of(cluster, kind)
        assert not client.is_open
        assert await client.start() is client
        assert client.is_open
        await client.close()
        await client.close()
        assert not client.is_open
        for use in USES[kind]:
            with pytest.raises(ClientStateError, match=rf"this {kind} was closed: create a new"):
                await used(use, client)
        with pytest.raises(ClientStateError, match="was started before: create a new one"):
            await client.start()

    cluster.run(run)


@every_kind
def test_a_second_start_is_refused_and_the_first_goes_on(
    cluster: FakeCluster, broker: FakeBroker, kind: str
) -> None:
    async def run() -> None:
        async with client_of(cluster, kind) as client:
            with pytest.raises(ClientStateError, match="started before"):
                await client.start()
            assert client.is_open

    cluster.run(run)


def test_a_client_that_was_closed_before_its_start_cannot_be_started(
    cluster: FakeCluster,
) -> None:
    async def run() -> None:
        client = client_of(cluster, "Producer")
        await client.close()
        with pytest.raises(ClientStateError, match="started before"):
            await client.start()

    cluster.run(run)


@every_kind
def test_a_start_without_name_server_fails_at_once_and_leaves_nothing(
    cluster: FakeCluster, kind: str
) -> None:
    async def run() -> None:
        client = client_of(cluster, kind, "10.0.0.1:9999;10.0.0.77:9876")
        with pytest.raises((ConnectionClosed, CallTimeout)) as failure:
            await client.start()
        assert "name servers asked: " in "".join(failure.value.__notes__)
        assert not client.is_open

    cluster.run(run)
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_a_cancelled_start_leaves_nothing(
    cluster: FakeCluster, broker: FakeBroker, kind: str
) -> None:
    async def run(after_s: float) -> None:
        client = client_of(cluster, kind)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(after_s)
        starting.cancel()
        await asyncio.wait([starting])
        await client.close()
        assert broker.members["G"] == {}

    fill(broker, 1)
    for steps in range(12):
        cluster.run(partial(run, steps / 2000))
        assert cluster.nothing_is_left()


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_a_close_during_the_start_ends_both(
    cluster: FakeCluster, broker: FakeBroker, kind: str
) -> None:
    async def run(after_s: float) -> None:
        client = client_of(cluster, kind)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(after_s)
        await client.close()
        await asyncio.wait([starting])
        assert starting.exception() is None or isinstance(starting.exception(), RoquetError)
        assert not client.is_open
        assert broker.members["G"] == {}

    fill(broker, 1)
    for steps in range(12):
        cluster.run(partial(run, steps / 2000))
        assert cluster.nothing_is_left()


def test_a_close_whose_caller_is_cancelled_does_its_other_steps(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        client = await client_of(cluster, "Consumer").start()
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        await client.close()
        assert broker.members["G"] == {}

    fill(broker, 1)
    cluster.run(run)
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("is_known", [False, True])
def test_a_close_takes_5_s_at_most_and_does_its_work_at_brokers_that_answer(
    cluster: FakeCluster, broker: FakeBroker, is_known: bool
) -> None:
    """It waited for a silent broker with each of the clients, one after the other."""
    answering = cluster.broker("10.0.2.1:10911", "broker-b")
    for each in (broker, answering):
        each.create("T", 1)
        each.store("T", 0, b"0")

    async def run() -> float:
        mq = await client_of(cluster, "Client").start()
        for number in range(5):
            await mq.producer(f"P{number}").start()
        consumers = [
            await mq.consumer(f"G{number}", "T", start="earliest").start() for number in range(3)
        ]
        for consumer in consumers:
            for message in (await consumer.get(), await consumer.get()):
                message.ack()
        cluster.sim.network.partition(broker.host.address, CLIENT)
        if is_known:
            with pytest.raises(CallTimeout):
                await consumers[0].commit()
        began = asyncio.get_running_loop().time()
        await mq.close()
        return asyncio.get_running_loop().time() - began

    assert cluster.run(run) < (1 if is_known else 5)
    stored = [answering.offsets[f"G{number}", "T", 0] for number in range(3)]
    assert stored == [1, 1, 1]
    left = [request.fields for request in answering.requests[RequestCode.UNREGISTER_CLIENT]]
    assert sorted(fields["consumerGroup"] for fields in left if "consumerGroup" in fields) == [
        "G0", "G1", "G2",
    ]  # fmt: skip
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("silent_s", [0, 1, 10, 20, 21, 30, 33])
def test_a_close_does_not_wait_in_turn_for_the_heartbeats_of_each_rebalance(
    cluster: FakeCluster, broker: FakeBroker, silent_s: float
) -> None:
    """They began outside the close, so each took its whole 3 s."""

    async def run() -> float:
        mq = await client_of(cluster, "Client").start()
        consumers = [
            await mq.consumer(f"G{number}", "T", start="earliest").start() for number in range(6)
        ]
        await asyncio.sleep(6)
        for consumer in consumers:
            (await consumer.get()).ack()
        cluster.sim.network.partition(broker.host.address, CLIENT)
        await asyncio.sleep(silent_s)
        began = asyncio.get_running_loop().time()
        await mq.close()
        return asyncio.get_running_loop().time() - began

    fill(broker, 1)
    assert cluster.run(run) < 5
    assert cluster.nothing_is_left()


def test_the_handlers_of_all_consumers_end_at_the_same_time(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """They had their time one consumer after the other, and those not stopped yet went on."""

    async def handle(_: ReceivedMessage) -> None:
        handled.append(1)
        await asyncio.sleep(10)

    async def run() -> float:
        mq = await client_of(cluster, "Client").start()
        for number in range(3):
            consumer = await mq.consumer(f"G{number}", "T", start="earliest").start()
            runs.append(asyncio.create_task(consumer.run(handle)))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await mq.close()
        assert all(run.done() for run in runs)
        return asyncio.get_running_loop().time() - began

    handled: list[int] = []
    runs: list[asyncio.Task[None]] = []
    fill(broker, 9)
    assert cluster.run(run) == pytest.approx(9, abs=0.5)
    assert len(handled) == 3


async def test_another_event_loop_is_told_apart() -> None:
    async with roquet.dev.Cluster() as dev, Producer(dev.name_server, "P") as producer:

        def send() -> BaseException | None:
            try:
                asyncio.run(producer.send("T", b"1"))
            except ClientStateError as error:
                return error
            return None

        for error in (await asyncio.to_thread(send), await asyncio.to_thread(closed_by, producer)):
            assert "was started in another event loop: use it only in that one" in str(error)
        assert (await producer.send("T", b"1")).message_id


def closed_by(client: SessionUser) -> BaseException | None:
    try:
        asyncio.run(client.close())
    except ClientStateError as error:
        return error
    return None


PROGRAM = """
import asyncio, os, sys
import roquet


async def main(end):
    async with roquet.dev.Cluster() as cluster:
        producer = await roquet.Producer(cluster.name_server, "P").start()
        end(producer)
    return producer


def tell(work):
    try:
        asyncio.run(work)
    except roquet.ClientStateError as error:
        print(error, flush=True)
    else:
        print("no error", flush=True)


def fork(producer):
    child = os.fork()
    if child == 0:
        tell(producer.send("T", b"1"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    asyncio.create_task(producer.close())
"""


def output(end_of_program: str) -> list[str]:
    program = PROGRAM + end_of_program
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_is_told_apart() -> None:
    (line,) = output("asyncio.run(main(fork))")
    assert "was started in process " in line
    assert line.endswith("create and start a client after the fork")


@pytest.mark.process
def test_a_client_whose_event_loop_has_ended_can_be_closed() -> None:
    lines = output(
        """
producer = asyncio.run(main(lambda producer: None))
tell(producer.send("T", b"1"))
tell(producer.close())
print(producer.is_open)
"""
    )
    assert "was started in another event loop" in lines[0]
    assert lines[1:] == ["no error", "False"]


@pytest.mark.process
def test_the_end_of_the_program_closes_what_a_cancelled_task_had_open() -> None:
    """asyncio.run cancels what is left, a task that is just closing its client, too."""
    assert (
        output(
            """
import gc, warnings

warnings.simplefilter("error", ResourceWarning)
sys.unraisablehook = lambda unraisable: print(unraisable.exc_value, flush=True)


async def consume(name_server, entered):
    async with roquet.Consumer(name_server, "G", "T") as consumer:
        entered.set()
        await consumer.get()


async def leave():
    entered = asyncio.Event()
    task = asyncio.create_task(consume(cluster.name_server, entered))
    await entered.wait()
    task.cancel()


with roquet.dev.Cluster() as cluster:
    cluster.create_topic("T")
    asyncio.run(leave())
    gc.collect()
"""
        )
        == []
    )
