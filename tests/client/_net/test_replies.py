"""Requests and replies between clients, over a real broker.

See docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.received import MessageSource, ReceivedMessage
from roquet.common.runtime import Runtime
from roquet.errors import CallTimeout, MessageError, ResponseError
from roquet.protocol.records.message import (
    CLUSTER,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    Message,
    join_properties,
)
from tests.client.served import NAME_SERVER, QUEUES, Served
from tests.protocol.examples import RECORD
from tests.simulation.simulation import Host

REPLIES = "DefaultCluster_REPLY_TOPIC"


def producer(host: Host, group: str = "askers") -> Producer:
    runtime = Runtime(host.now_ms, host.random)
    return Producer(NAME_SERVER, group, client_id=f"{host.address}@{group}", runtime=runtime)


def start_upper_case(served: Served) -> list[ReceivedMessage]:
    """A consumer that replies with the request in upper case; returns the requests that came."""
    host, requests = served.sim.host("10.0.9.2"), list[ReceivedMessage]()

    async def serve() -> None:
        runtime = Runtime(host.now_ms, host.random)
        async with (
            producer(host, "repliers") as p,
            Consumer(
                NAME_SERVER, "G", "T", "earliest", client_id="10.0.9.2@c", runtime=runtime
            ) as consumer,
        ):
            async for message in consumer:
                requests.append(message)
                async with message:
                    if message.body != b"plain":
                        await p.reply(
                            message, message.body.upper(), tags="t", properties={"mine": "1"}
                        )

    host.start(serve)
    served.sim.run_for(5)
    return requests


def test_a_request_gets_its_reply(served: Served) -> None:
    requests = start_upper_case(served)

    async def run() -> list[ReceivedMessage]:
        async with producer(served.client) as p:
            return await asyncio.gather(
                *(p.request(Message("T", b"ping %d" % n), timeout_ms=20_000) for n in range(10))
            )

    replies = served.run(run)
    assert [reply.body for reply in replies] == [b"PING %d" % n for n in range(10)]
    first = replies[0]
    assert (first.topic, first.tags, first.properties["mine"], first.queue_offset) == (
        REPLIES,
        "t",
        "1",
        -1,
    )
    asked = {request.body.upper(): request for request in requests}
    for reply in replies:
        assert reply.properties["CORRELATION_ID"] == asked[reply.body].properties["CORRELATION_ID"]
        assert reply.properties["TTL"] == "20000"
    assert len(served.bodies(REPLIES)) == 10


def test_large_replies_are_compressed_on_their_way(served: Served) -> None:
    start_upper_case(served)

    async def run() -> ReceivedMessage:
        async with producer(served.client) as p:
            return await p.request("T", b"x" * 9000, tags="a", timeout_ms=20_000)

    assert served.run(run).body == b"X" * 9000
    assert len(served.records(REPLIES)[0].body) < 9000


def test_nobody_replies_in_time(served: Served) -> None:
    async def run() -> None:
        async with producer(served.client) as p:
            await p.request(Message("T", b"ping"), timeout_ms=2000)

    with pytest.raises(CallTimeout, match="no reply to the request to topic T within 2000 ms"):
        served.run(run)
    assert served.bodies() == ["ping"]


def test_a_reply_that_comes_too_late_is_no_trouble(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    requests: list[ReceivedMessage] = []

    async def run() -> None:
        runtime = Runtime(served.client.now_ms, served.client.random)
        async with (
            producer(served.client) as p,
            Consumer(
                NAME_SERVER, "G", "T", "earliest", client_id="10.0.9.1@c", runtime=runtime
            ) as consumer,
        ):
            with pytest.raises(CallTimeout):
                await p.request(Message("T", b"ping"), timeout_ms=1000)
            requests.extend(await consumer.get_many(1, 30_000))
            await p.reply(requests[0], b"pong")

    with caplog.at_level("INFO"):
        served.run(run)
    assert "reply dropped, no request waits for it: broker=" in caplog.text


def test_who_replies_hears_that_the_asker_is_gone(served: Served) -> None:
    async def ask() -> None:
        async with producer(served.client) as p:
            with pytest.raises(CallTimeout):
                await p.request(Message("T", b"ping"), timeout_ms=1000)

    async def reply() -> None:
        host = served.client
        runtime = Runtime(host.now_ms, host.random)
        async with (
            producer(host, "repliers") as p,
            Consumer(
                NAME_SERVER, "G", "T", "earliest", client_id="10.0.9.1@c", runtime=runtime
            ) as consumer,
        ):
            (request,) = await consumer.get_many(1, 30_000)
            await p.reply(request, b"pong")

    served.run(ask)
    with pytest.raises(ResponseError, match=r"channel of <10\.0\.9\.1@askers> not found"):
        served.run(reply)


def test_a_message_that_asks_for_no_reply_gets_none(served: Served) -> None:
    async def run() -> None:
        runtime = Runtime(served.client.now_ms, served.client.random)
        async with (
            producer(served.client) as p,
            Consumer(
                NAME_SERVER, "G", "T", "earliest", client_id="10.0.9.1@c", runtime=runtime
            ) as consumer,
        ):
            await p.send("T", b"plain")
            (message,) = await consumer.get_many(1, 30_000)
            await p.reply(message, b"pong")

    with pytest.raises(MessageError, match="asks for no reply"):
        served.run(run)


def test_the_reply_goes_over_the_broker_that_had_the_request(served: Served) -> None:
    served.more("10.0.0.2", brokerName="broker-b")
    start_upper_case(served)

    async def make_topic() -> None:
        async with producer(served.client) as p:
            for _ in range(2 * QUEUES):
                await p.send_one_way("T", b"plain")

    served.run(make_topic)
    served.sim.run_for(35)

    async def run() -> list[ReceivedMessage]:
        async with producer(served.client) as p:
            return [
                await p.request(Message("T", b"ping %d" % n), timeout_ms=20_000) for n in range(8)
            ]

    assert len(served.run(run)) == 8
    assert (
        len(served.bodies(REPLIES))
        == len([body for body in served.bodies("T") if body != "plain"])
        < 8
    )


def test_a_reply_cannot_be_delayed(served: Served) -> None:
    properties = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "10.0.0.1@1", CLUSTER: "C"}
    record = replace(RECORD, properties_text=join_properties(properties))
    request = ReceivedMessage(record, MessageSource("a"), 0)

    async def reply() -> None:
        async with producer(served.client) as p:
            with pytest.raises(MessageError, match="a reply cannot be delayed"):
                await p.reply(request, b"!", delay_level=1)

    served.run(reply)
