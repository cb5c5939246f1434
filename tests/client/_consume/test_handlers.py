"""Handlers: how many run at a time, what settles their messages, and how they end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import roquet
from roquet.client.consumer import Consumer
from roquet.client.received import ReceivedMessage
from roquet.errors import CallTimeout, ClientStateError, ConfigError
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import consumer, fill, ordered, stored


class Work:
    """A handler that takes a second, and what it saw."""

    def __init__(self, c: Consumer, count: int) -> None:
        self.consumer = c
        self.left = count
        self.running = 0
        self.most = 0
        self.bodies: list[bytes] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(1)
        finally:
            self.running -= 1
        self.bodies.append(message.body)
        self.left -= 1
        if self.left == 0:
            self.consumer.stop()


@pytest.mark.parametrize("concurrency", [1, 4])
def test_so_many_messages_are_handled_at_a_time(
    cluster: FakeCluster, broker: FakeBroker, concurrency: int
) -> None:
    async def consume() -> Work:
        async with consumer(cluster) as c:
            work = Work(c, 12)
            await c.run(work, concurrency=concurrency)
            assert work.running == 0
            return work

    fill(broker, 12)
    work = cluster.run(consume)
    assert work.most == concurrency
    assert sorted(work.bodies) == sorted(b"%d" % number for number in range(12))
    assert stored(broker) == {0: 12}
    assert cluster.nothing_is_left()


def test_in_order_each_queue_has_one_handler(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> Work:
        async with ordered(cluster) as c:
            work = Work(c, 12)
            await c.run(work, concurrency=10)
            return work

    fill(broker, 12, queues=3)
    work = cluster.run(consume)
    assert work.most == 3
    for number in range(3):
        of_queue = [body for body in work.bodies if int(body) % 3 == number]
        assert of_queue == sorted(of_queue, key=int)


def test_a_handler_that_fails_has_its_message_delivered_again(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[tuple[bytes, int]] = []

    async def handle(c: Consumer, message: ReceivedMessage) -> None:
        tries.append((message.body, message.reconsume_times))
        if message.reconsume_times:
            c.stop()
        elif message.body == b"1":
            raise ValueError("no")

    async def consume() -> None:
        async with consumer(cluster) as c:
            await c.run(partial(handle, c))

    fill(broker, 3)
    cluster.run(consume)
    assert tries == [(b"0", 0), (b"1", 0), (b"2", 0), (b"1", 1)]
    assert len([line for line in caplog.messages if line.startswith("message failed")]) == 1


def test_something_cancelled_in_a_handler_is_a_failure_and_ends_no_worker(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    tries: list[int] = []

    async def handle(c: Consumer, message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        if not message.reconsume_times:
            cancelled = asyncio.create_task(asyncio.sleep(10))
            cancelled.cancel()
            await cancelled
        c.stop()

    async def consume() -> None:
        async with consumer(cluster) as c:
            await c.run(partial(handle, c))

    fill(broker, 1)
    cluster.run(consume)
    assert tries == [0, 1]


async def late(message: ReceivedMessage) -> None:
    await asyncio.sleep(100)


def test_handlers_that_take_too_long_after_a_stop_are_cancelled(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> float:
        async with consumer(cluster) as c:
            run = asyncio.create_task(c.run(late, concurrency=2, drain_timeout_ms=5000))
            await asyncio.sleep(1)
            c.stop()
            began = asyncio.get_running_loop().time()
            await run
            return asyncio.get_running_loop().time() - began

    fill(broker, 3)
    assert cluster.run(consume) == pytest.approx(5, abs=0.1)
    assert stored(broker) == {0: 0}
    assert "handlers cancelled, they did not end in time after the stop: waited_s=5" in caplog.text
    assert "not settled" not in caplog.text, "that is told already"
    assert cluster.nothing_is_left()


def test_a_close_waits_for_the_handlers(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            run = asyncio.create_task(c.run(Work(c, 100), concurrency=2))
            await asyncio.sleep(0.5)
        assert run.done()

    fill(broker, 9)
    cluster.run(consume)
    assert stored(broker) == {0: 2}


def test_a_cancelled_run_cancels_its_handlers(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await c.run(late, concurrency=2)

    fill(broker, 3)
    cluster.run(consume)
    sent_back = broker.requests[RequestCode.CONSUMER_SEND_MSG_BACK]
    assert [request.fields["offset"] for request in sent_back] != []
    assert stored(broker) == {0: len(sent_back)}
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("kind", [consumer, ordered])
def test_a_message_whose_run_was_cancelled_comes_again(
    cluster: FakeCluster, broker: FakeBroker, kind: Callable[..., Consumer]
) -> None:
    """In order, no other message would come before it."""

    async def consume() -> list[bytes]:
        async with kind(cluster) as c:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await c.run(late)
            work = Work(c, 3)
            await c.run(work)
            return work.bodies

    fill(broker, 3)
    assert sorted(cluster.run(consume)) == [b"0", b"1", b"2"]


def test_a_handler_cannot_close_its_consumer(cluster: FakeCluster, broker: FakeBroker) -> None:
    errors: list[BaseException] = []

    async def handle(c: Consumer, message: ReceivedMessage) -> None:
        try:
            await c.close()
        except ClientStateError as error:
            errors.append(error)
            c.stop()

    async def consume() -> None:
        async with consumer(cluster) as c:
            await c.run(partial(handle, c))

    fill(broker, 1)
    cluster.run(consume)
    assert "none of them can call it: call stop()" in str(errors[0])


def test_a_handler_cannot_close_the_client_that_has_the_session(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        runtime = cluster.client.runtime()
        async with roquet.connect(NAME_SERVER, runtime=runtime) as mq:
            async with mq.consumer("G", "T", start="earliest") as c:

                async def handle(_: ReceivedMessage) -> None:
                    with pytest.raises(ClientStateError, match="none of them can call it"):
                        await mq.close()
                    c.stop()

                await c.run(handle)
                assert mq.is_open
                assert c.is_open
            assert stored(broker) == {0: 1}

    fill(broker, 1)
    cluster.run(consume)


@pytest.mark.parametrize(
    ("handler", "options", "argument"),
    [
        (None, {}, "handler is None"),
        (late, {"concurrency": 0}, "concurrency is 0"),
        (late, {"concurrency": 2.5}, r"concurrency is 2\.5"),
        (late, {"drain_timeout_ms": -1}, "drain_timeout_ms is -1"),
    ],
)
def test_a_wrong_argument_is_named(
    cluster: FakeCluster, broker: FakeBroker, handler: Any, options: dict[str, Any], argument: str
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(ConfigError, match=argument):
                await c.run(handler, **options)

    fill(broker, 1)
    cluster.run(consume)


class Blocking:
    """Handles three messages at a time, or none."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.barrier = threading.Barrier(3)
        self.left = 6
        self.done = threading.Event()

    def handle(self, message: ReceivedMessage) -> None:
        self.threads.add(threading.current_thread().name)
        if self.barrier.wait(timeout=60) == 0:  # one of the three
            self.left -= 3
            if self.left == 0:
                self.done.set()

    def handle_and_go_on(self, message: ReceivedMessage) -> Awaitable[None]:
        async def go_on() -> None:
            self.threads.add("of the loop: " + threading.current_thread().name)

        self.handle(message)
        return go_on()


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_function_that_blocks_runs_in_threads(goes_on: bool) -> None:
    blocking = Blocking()
    async with roquet.dev.Cluster() as dev, roquet.connect(dev.name_server) as mq:
        for number in range(6):
            await mq.send("T", b"%d" % number)
        async with mq.consumer("G", "T", start="earliest") as c:
            handle = blocking.handle_and_go_on if goes_on else blocking.handle
            run = asyncio.create_task(c.run(handle, concurrency=3))
            async with asyncio.timeout(60):
                await asyncio.to_thread(blocking.done.wait)
            c.stop()
            await run
    pool = {f"roquet-handler-{number}" for number in range(1, 4)}
    of_loop = {"of the loop: MainThread"} if goes_on else set()
    assert blocking.threads == pool | of_loop


@pytest.mark.parametrize(("error", "next_body"), [(None, b"1"), (ValueError("no"), b"0")])
async def test_a_message_whose_run_was_cancelled_is_settled_when_its_thread_ends(
    error: Exception | None, next_body: bytes
) -> None:
    """Nothing cancels a thread. A second delivery meanwhile would be handled beside the first."""
    began, go_on = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        began.set()
        go_on.wait(60)
        if error is not None:
            raise error

    async with roquet.dev.Cluster() as dev, roquet.connect(dev.name_server) as mq:
        for number in range(2):
            await mq.send("T", b"%d" % number, sharding_key="one")
        async with mq.consumer("G", "T", start="earliest", ordered=True, suspend_ms=10) as c:
            run = asyncio.create_task(c.run(handle))
            assert await asyncio.to_thread(began.wait, 60)
            run.cancel()
            await asyncio.wait([run])
            with pytest.raises(CallTimeout):
                await c.get(100)
            go_on.set()
            message = await c.get(60_000)
            assert (message.body, message.reconsume_times) == (next_body, int(next_body == b"0"))


HANGS = """
import asyncio, sys, threading, roquet

async def main():
    async with roquet.connect(sys.argv[1]) as mq, mq.consumer("G", "T", start="earliest") as c:
        def handle(_):
            loop.call_soon_threadsafe(c.stop)
            threading.Event().wait()
        loop = asyncio.get_running_loop()
        await c.run(handle, drain_timeout_ms=0)

asyncio.run(main())
print("ended", flush=True)
"""


async def test_a_process_ends_although_a_handler_hangs_in_its_thread() -> None:
    async with roquet.dev.Cluster() as dev, roquet.connect(dev.name_server) as mq:
        await mq.send("T", b"0")
        command = [sys.executable, "-c", HANGS, dev.name_server]
        ended = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, check=True
        )
        assert ended.stdout == "ended\n"
