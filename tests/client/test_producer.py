"""A producer against brokers that do as scripted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from roquet.client.config import ClientConfig
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer, SendStatus
from roquet.errors import (
    ConfigError,
    ConnectionClosed,
    MessageError,
    RouteNotFound,
)
from roquet.protocol.bodies.tables import Heartbeat, parse
from roquet.protocol.records.message import Message, MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.client.producers import bodies, producer

SEND = RequestCode.SEND_MESSAGE_V2


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


def test_a_producer_says_how_the_topics_that_it_creates_are_made(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        cluster.create("template", "broker-a", queues=3)
        options: dict[str, Any] = {
            "create_topic_key": "template",
            "default_topic_queue_nums": 2,
        }
        async with producer(cluster, **options) as p:
            assert len(await p.queues("new")) == 2
            await p.send("new", b"hi")
            await p.send_one_way("new", b"hi")
            await p.send_batch([Message("new", b"hi")])
        async with producer(cluster) as p:
            await p.send("other", b"hi")

    cluster.run(send)
    requests = broker.requests[SEND] + broker.requests[RequestCode.SEND_BATCH_MESSAGE]
    made = {(each.fields["b"], each.fields["c"], each.fields["d"]) for each in requests}
    assert made == {("new", "template", "2"), ("other", "TBW102", "4")}


def test_a_producer_says_how_large_messages_may_be(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, max_message_size=1000, compression=None) as p:
            await p.send("T", bytes(1000))
            for sending in (p.send("T", bytes(1001)), p.send_one_way("T", bytes(1001))):
                with pytest.raises(MessageError, match="body of 1001 bytes, allowed are 1000"):
                    await sending
            await p.send_batch([Message("T", bytes(400))] * 4)
            with pytest.raises(MessageError, match="a batch may have 1000"):
                await p.send_batch([Message("T", bytes(1000))])
        async with producer(cluster, max_message_size=1000, linger_ms=50) as p:
            await asyncio.gather(*(p.send("T", bytes(400)) for _ in range(4)))
        async with producer(cluster, max_message_size=5 << 20, compression=None) as p:
            await p.send("T", bytes(5 << 20))

    cluster.run(send)
    batches = broker.requests[RequestCode.SEND_BATCH_MESSAGE]
    assert len(batches) == 4
    assert all(len(each.body) <= 1000 for each in batches)


def test_a_client_of_a_unit_says_so_in_all_that_may_create_a_topic(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run(unit_mode: bool) -> None:
        for requests in broker.requests.values():
            requests.clear()
        runtime = cluster.client.runtime()
        config = ClientConfig(NAME_SERVER, runtime=runtime, unit_mode=unit_mode, unit_name="u")
        async with Producer(config, "P") as p, Consumer(config, "G", "T", "earliest") as c:
            await p.send("T", b"1")
            async with c.batch():
                raise ZeroDivisionError  # the message is sent back
            await asyncio.sleep(1)
        said = "true" if unit_mode else "false"
        (sent,) = broker.requests[SEND]
        (back,) = broker.requests[RequestCode.CONSUMER_SEND_MSG_BACK]
        assert (sent.fields["k"], back.fields["unitMode"]) == (said, said)
        beats = [
            parse(each.body, Heartbeat.from_json)
            for each in broker.requests[RequestCode.HEART_BEAT]
        ]
        assert {data.unit_mode for beat in beats for data in beat.consumers} == {unit_mode}
        assert all(beat.client_id.endswith("@u") for beat in beats)

    cluster.create("T", "broker-a")
    for unit_mode in (True, False):
        cluster.run(partial(run, unit_mode))


def test_a_template_with_fewer_queues_counts(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> int:
        cluster.create("template", "broker-a", queues=3)
        async with producer(
            cluster, create_topic_key="template", default_topic_queue_nums=100
        ) as p:
            return len(await p.queues("new"))

    assert cluster.run(send) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"create_topic_key": ""}, "create_topic_key is '': the topic's name is blank"),
        ({"create_topic_key": "a b"}, "create_topic_key is 'a b': topic name"),
        ({"create_topic_key": None}, "create_topic_key is None: topic is None"),
        ({"max_message_size": 0}, "max_message_size is 0: allowed are 1 to 16777216"),
        ({"max_message_size": 16777217}, "max_message_size is 16777217: allowed are 1 to"),
        ({"default_topic_queue_nums": 0}, "default_topic_queue_nums is 0: allowed are 1 to"),
        ({"default_topic_queue_nums": "4"}, "default_topic_queue_nums is '4': allowed are 1 to"),
        ({"default_topic_queue_nums": 1 << 31}, "default_topic_queue_nums is 2147483648"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Producer(NAME_SERVER, "P", **options)


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
    lines = [record.getMessage() for record in caplog.records]
    assert sum("name server does not answer: address=" in line for line in lines) == 1
    assert sum("broker does not answer" in line for line in lines) == 1
    assert len(lines) <= 3


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


def test_a_function_may_choose_the_queue_of_each_kind_of_send(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"1", queue=lambda queues: queues[2])
            await p.send_batch([Message("T", b"2")], queue=lambda queues: queues[2])
            await p.send_one_way("T", b"3", queue=lambda queues: queues[2])
            await asyncio.sleep(1)

    cluster.run(send)
    assert [record.body for record in broker.log.queues["T", 2]] == [b"1", b"2", b"3"]


def test_what_a_function_for_the_queue_raises_reaches_the_caller(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    def refuse(_: object) -> MessageQueue:
        raise ConnectionClosed("no shard")

    async def send() -> None:
        async with producer(cluster, max_in_flight=1) as p:
            for sending in (
                p.send("T", b"1", queue=refuse),
                p.send_batch([Message("T", b"2")], queue=refuse),
                p.send_one_way("T", b"3", queue=refuse),
            ):
                with pytest.raises(ConnectionClosed, match=r"^no shard$"):
                    await sending

    cluster.run(send)
    assert bodies(broker) == []
