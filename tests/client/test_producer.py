"""A producer against brokers that do as scripted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from roquet.client._send.sender import IN_FLIGHT_MAX
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer, SendStatus
from roquet.errors import (
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    MessageError,
    ResponseError,
    RouteNotFound,
)
from roquet.protocol.records.message import Message, MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster

SEND = RequestCode.SEND_MESSAGE_V2


def producer(
    cluster: FakeCluster, name_server: str = NAME_SERVER, timeout_ms: int = 3000
) -> Producer:
    runtime = cluster.client.runtime() if cluster.client.is_running else None
    return Producer(
        name_server, "P", timeout_ms=timeout_ms, client_id=f"{CLIENT}@test", runtime=runtime
    )


@pytest.fixture
def other(cluster: FakeCluster) -> FakeBroker:
    return cluster.broker("10.0.2.1:10911", "broker-b")


def bodies(broker: FakeBroker, topic: str = "T") -> list[bytes]:
    return [
        record.body
        for key in sorted(broker.log.queues)
        if key[0] == topic
        for record in broker.log.queues[key]
    ]


def test_a_send_says_where_the_message_is(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            result = await p.send(
                "T", b"hi", tags="a", keys=("k1", "k2"), properties={"color": "red"}, delay_level=2
            )
        (record,) = broker.log.queues["T", result.queue.queue_id]
        assert result.status is SendStatus.SEND_OK
        assert result.queue.broker_name == "broker-a"
        assert result.offset_message_id == record.offset_message_id
        assert record.properties == {
            "UNIQ_KEY": result.message_id,
            "TAGS": "a",
            "KEYS": "k1 k2",
            "DELAY": "2",
            "WAIT": "true",
            "color": "red",
        }

    cluster.run(send)


def test_the_ways_to_write_a_send_mean_the_same(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> list[str]:
        async with producer(cluster) as p:
            message = Message("T", b"hi", tags="a", flag=7)
            results = [
                await p.send(message),
                await p.send("T", b"hi", tags="a", flag=7),
                await p.send(topic="T", body=b"hi", tags="a", flag=7),
                *await p.send_batch([message]),
            ]
            one_way = [
                await p.send_one_way(message),
                await p.send_one_way("T", b"hi", tags="a", flag=7),
            ]
            await asyncio.sleep(1)
            return [result.message_id for result in results] + one_way

    keys = cluster.run(send)
    records = [record for queue in broker.log.queues.values() for record in queue]
    stored = {record.properties["UNIQ_KEY"]: record for record in records}
    assert stored.keys() == {*keys}
    assert {(each.body, each.properties["TAGS"], each.flag) for each in records} == {
        (b"hi", "a", 7)
    }


def test_a_message_and_its_fields_are_not_sent_together(cluster: FakeCluster) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            for sending in (
                p.send(Message("T", b"hi"), b"hi"),
                p.send_one_way(Message("T", b"hi"), tags="a"),
            ):
                with pytest.raises(MessageError, match="a Message to T is sent together with"):
                    await sending

    cluster.run(send)


def test_a_topic_that_does_not_exist_is_created_by_sending_to_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            assert len(await p.queues("new")) == 4
            await p.send("new", b"hi")

    cluster.run(send)
    assert bodies(broker, "new") == [b"hi"]


def test_the_real_route_replaces_the_expected_one_within_half_a_minute(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> int:
        async with producer(cluster) as p:
            await p.send("new", b"hi")
            cluster.topics["new"]["broker-a"] = 7
            await asyncio.sleep(31)
            return len(await p.queues("new"))

    assert cluster.run(send) == 7


def test_a_topic_that_nobody_would_create_is_an_error(cluster: FakeCluster) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")

    with pytest.raises(RouteNotFound, match=rf"topic T \(name servers asked: {NAME_SERVER}\)"):
        cluster.run(send)


def test_messages_are_spread_over_all_queues(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> set[MessageQueue]:
        async with producer(cluster) as p:
            return {(await p.send("T", b"hi")).queue for _ in range(8)}

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    assert len(cluster.run(send)) == 8


@pytest.mark.parametrize("code", [17, 14, 1, 16, 204, 205, 2])
def test_a_refusal_that_another_broker_may_not_share_is_tried_there(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker, code: int
) -> None:
    async def send() -> list[str]:
        async with producer(cluster) as p:
            return [(await p.send("T", b"hi")).queue.broker_name for _ in range(2)]

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    broker.script[SEND] = [code] * 9
    assert cluster.run(send) == ["broker-b"] * 2


@pytest.mark.parametrize("code", [13, 26])
def test_any_other_refusal_is_an_error_at_once(
    cluster: FakeCluster, broker: FakeBroker, code: int
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")

    broker.script[SEND] = [code]
    with pytest.raises(ResponseError, match=f"10.0.1.1:10911 answered code {code}: scripted"):
        cluster.run(send)
    assert len(broker.requests[SEND]) == 1


def test_after_three_tries_the_refusal_is_the_caller_s(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")

    broker.script[SEND] = [14] * 9
    with pytest.raises(ResponseError, match="code 14"):
        cluster.run(send)
    assert len(broker.requests[SEND]) == 3
    assert len({request.fields["i"] for request in broker.requests[SEND]}) == 1, (
        "every try carries the same id"
    )


def test_one_budget_of_time_holds_for_all_tries(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.send("T", b"first")
            broker.script[SEND] = [SILENCE] * 9
            began = cluster.sim.now_s
            with pytest.raises(CallTimeout):
                await p.send("T", b"hi")
            return cluster.sim.now_s - began

    assert cluster.run(send) == pytest.approx(3, abs=0.01)


def test_a_broker_that_is_gone_is_replaced_by_another_and_forgotten(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> list[str]:
        async with producer(cluster) as p:
            await p.queues("T")
            broker.host.kill()
            cluster.listed.discard(broker.address)
            return [(await p.send("T", b"hi")).queue.broker_name for _ in range(8)]

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    assert cluster.run(send) == ["broker-b"] * 8
    assert cluster.route_requests.count("T") == 2, (
        "asked for once, and once more when the broker was gone"
    )


def test_a_restarted_broker_is_found_again(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"before")
            broker.host.kill()
            with pytest.raises(ConnectionClosed):
                await p.send("T", b"meanwhile", timeout_ms=500)

    async def send_again() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"after")

    cluster.run(send)
    broker.start()
    cluster.run(send_again)
    assert sorted(bodies(broker)) == [b"after", b"before"]


def test_that_no_name_server_answers_is_told_once_and_not_with_each_send(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"before")
            broker.host.kill()
            cluster.name_server_host.kill()
            for _ in range(20):
                with pytest.raises(ConnectionClosed):
                    await p.send("T", b"meanwhile", timeout_ms=500)

    cluster.run(send)
    assert (
        sum("route not refreshed: topic=" in record.getMessage() for record in caplog.records) == 1
    )


def test_a_master_that_is_back_is_found_with_the_next_send(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            cluster.listed.discard(broker.address)
            with pytest.raises(RouteNotFound, match="whose master is up"):
                await p.send("T", b"meanwhile")
            cluster.listed.add(broker.address)
            await p.send("T", b"after")

    cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    cluster.create("T", "broker-a")
    cluster.run(send)
    assert bodies(broker) == [b"after"]


def test_a_broker_that_is_busy_is_not_asked_again_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.queues("T")
            began = cluster.sim.now_s
            await p.send("T", b"hi")
            return cluster.sim.now_s - began

    broker.script[SEND] = [2]
    assert 0.1 <= cluster.run(send) < 0.2


def test_messages_of_one_key_keep_their_queue_and_their_order(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> set[MessageQueue]:
        async with producer(cluster) as p:
            queues = set()
            for number in range(5):
                queues.add((await p.send("T", b"%d" % number, sharding_key="order-1")).queue)
            return queues

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    broker.script[SEND] = other.script[SEND] = [1, 14]
    assert len(cluster.run(send)) == 1
    assert bodies(broker) + bodies(other) == [b"%d" % number for number in range(5)]


def test_a_message_for_one_queue_goes_nowhere_else(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi", queue=MessageQueue("T", "broker-a", 2))

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    broker.script[SEND] = [14] * 3
    with pytest.raises(ResponseError, match="code 14"):
        cluster.run(send)
    assert {request.fields["e"] for request in broker.requests[SEND]} == {"2"}
    assert other.requests[SEND] == []


def test_a_queue_of_another_topic_is_refused(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi", queue=MessageQueue("U", "broker-a", 2))

    with pytest.raises(MessageError, match="U@broker-a:2 is not one of topic T"):
        cluster.run(send)


def test_a_batch_has_one_result_per_message_in_its_order(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            results = await p.send_batch(
                [Message("T", b"%d" % number, flag=number) for number in range(3)]
            )
        queue = broker.log.queues["T", results[0].queue.queue_id]
        assert [record.body for record in queue] == [b"0", b"1", b"2"]
        assert [record.flag for record in queue] == [0, 1, 2]
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert [result.message_id for result in results] == [
            record.properties["UNIQ_KEY"] for record in queue
        ]
        assert [result.offset_message_id for result in results] == [
            record.offset_message_id for record in queue
        ]

    cluster.run(send)
    assert len(broker.requests[RequestCode.SEND_BATCH_MESSAGE]) == 1


def test_a_large_batch_goes_in_several_requests(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> int:
        async with producer(cluster) as p:
            return len(await p.send_batch(Message("T", bytes(1_000_000)) for _ in range(9)))

    assert cluster.run(send) == 9
    assert len(broker.requests[RequestCode.SEND_BATCH_MESSAGE]) == 3


def test_nothing_of_a_batch_is_sent_when_one_message_cannot_be(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send_batch(
                [
                    *(Message("T", bytes(1_000_000)) for _ in range(9)),
                    Message("T", bytes(4_194_304)),
                ]
            )

    with pytest.raises(MessageError):
        cluster.run(send)
    assert broker.requests[RequestCode.SEND_BATCH_MESSAGE] == []


def test_a_one_way_send_waits_for_no_answer(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> str:
        async with producer(cluster) as p:
            return await p.send_one_way("T", b"hi")

    broker.script[SEND] = [SILENCE]
    message_id = cluster.run(send)
    (request,) = broker.requests[SEND]
    assert request.is_one_way
    assert message_id in request.fields["i"]


def test_thousands_of_sends_at_once_wait_their_turn_before_their_time_runs(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            broker.script[SEND] = [SILENCE] * IN_FLIGHT_MAX
            sends = [
                asyncio.create_task(p.send("T", b"%d" % number))
                for number in range(3 * IN_FLIGHT_MAX)
            ]
            await asyncio.sleep(2.9)
            assert len(broker.requests[SEND]) == IN_FLIGHT_MAX
            await asyncio.wait(sends)
            assert [send.exception() for send in sends[IN_FLIGHT_MAX:]] == [None] * (
                2 * IN_FLIGHT_MAX
            )
            assert all(send.exception() for send in sends[:IN_FLIGHT_MAX])

    cluster.run(send)


def test_a_cancelled_send_gives_its_turn_to_another(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            broker.script[SEND] = [SILENCE] * IN_FLIGHT_MAX
            silent = [asyncio.create_task(p.send("T", b"silent")) for _ in range(IN_FLIGHT_MAX)]
            waiting = asyncio.create_task(p.send("T", b"cancelled while it waits"))
            last = asyncio.create_task(p.send("T", b"last"))
            await asyncio.sleep(1)
            for task in (*silent, waiting):
                task.cancel()
            await last

    cluster.run(send)
    assert bodies(broker) == [b"last"]


def test_a_connection_is_replaced_after_two_timeouts_in_a_row_but_not_after_one(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, timeout_ms=500) as p:
            for silent in (0, 1, 0, 2, 0):
                broker.script[SEND] = [SILENCE] * silent
                for _ in range(silent):
                    with pytest.raises(CallTimeout):
                        await p.send("T", b"lost")
                if not silent:
                    await p.send("T", b"stored")

    cluster.run(send)
    first, _, after_one, _, _, after_two = (request.opaque for request in broker.requests[SEND])
    assert first < after_one, "still the same connection"
    assert after_two == 1, "the first request of a new connection"


def test_the_next_name_server_is_asked_when_one_is_gone(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, f"10.0.0.7:9876;{NAME_SERVER};10.0.0.8:9876") as p:
            await p.send("T", b"hi")

    for gone in ("10.0.0.7", "10.0.0.8"):
        cluster.sim.host(gone).boot()
    cluster.run(send)
    assert bodies(broker) == [b"hi"]


def test_without_any_name_server_the_error_names_all(cluster: FakeCluster) -> None:
    async def send() -> None:
        async with producer(cluster, "10.0.0.7:9876") as p:
            await p.send("T", b"hi")

    cluster.sim.host("10.0.0.7").boot()
    with pytest.raises(ConnectionClosed, match=r"10\.0\.0\.7:9876") as caught:
        cluster.run(send)
    assert caught.value.__notes__ == ["name servers asked: 10.0.0.7:9876"]


@pytest.mark.parametrize("text", ["", " ; ", "localhost", "localhost:port"])
def test_an_address_that_is_none_is_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigError):
        Producer(text, "P")


def test_brokers_know_a_producer_by_its_heartbeats_until_it_leaves(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")
            await asyncio.sleep(65)

    cluster.run(send)
    assert len(broker.requests[RequestCode.HEART_BEAT]) == 3, "at once, and each 30 s"
    (good_bye,) = broker.requests[RequestCode.UNREGISTER_CLIENT]
    assert good_bye.fields == {"clientID": f"{CLIENT}@test", "producerGroup": "P"}


def test_a_producer_s_heartbeats_go_to_masters_only(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")
            await asyncio.sleep(1)

    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    cluster.run(send)
    assert slave.requests == {}


def test_nothing_of_a_closed_producer_is_left(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")

    cluster.run(send)
    assert cluster.nothing_is_left()


def test_what_no_broker_can_read_is_refused_before_anything_is_sent(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            for queue_id in (-1, 1 << 31, 1 << 64):
                queue = MessageQueue("T", "broker-a", queue_id)
                with pytest.raises(
                    MessageError, match=f"T@broker-a:{queue_id}: a queue id is a number from 0"
                ):
                    await p.send("T", b"hi", queue=queue)
            large = Message("T", b"hi", properties={"n": "v" * 70_000})
            for sending in (
                p.send(large),
                p.send_one_way(large),
                p.send_batch([large]),
                p.request(large),
            ):
                with pytest.raises(
                    MessageError, match=r"properties, tags and keys of 70\d{3} bytes"
                ):
                    await sending

    cluster.run(send)
    assert bodies(broker) == []


@pytest.mark.parametrize(
    ("name", "number"),
    [("max_reconsume_times", 1 << 31), ("batch_size", 0), ("batch_size", 1 << 31)],
)
def test_a_consumer_is_not_made_with_a_number_that_no_broker_can_read(
    name: str, number: int
) -> None:
    numbers: dict[str, Any] = {name: number}
    with pytest.raises(ConfigError, match=f"{name} is {number}"):
        Consumer(NAME_SERVER, "G", "T", **numbers)
