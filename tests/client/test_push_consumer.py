"""A member of a consumer group against brokers that do as scripted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from roquet.client.pull_flow import Limits
from roquet.client.push_consumer import Consumer, ReceivedMessage
from roquet.errors import CallTimeout, ConfigError, ConnectionClosed, MessageError
from roquet.protocol.bodies import FROM_TIMESTAMP, Heartbeat, parse
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.pull import COMMIT_OFFSET
from roquet.protocol.json_dialect import ObjectKeys, dump_dialect
from roquet.protocol.message import MessageQueue, split_properties
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.simulation.simulation import Host

SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
OTHER_CLIENT = "10.0.9.2"


def consumer(cluster: FakeCluster, topics: Any = "T", host: Host | None = None, **options: Any) -> Consumer:
    at = host or cluster.client
    options.setdefault("start", "first")
    return Consumer(NAME_SERVER, "G", topics, client_id=f"{at.address}@test", runtime=at.runtime(), **options)


def fill(broker: FakeBroker, count: int, topic: str = "T", queues: int = 1, properties: str = "") -> None:
    """Messages b"0", b"1", ... in turn over the queues."""
    broker.create(topic, queues)
    for number in range(count):
        broker.store(topic, number % queues, b"%d" % number, properties)


async def bodies(c: Consumer, count: int) -> list[bytes]:
    """Of the next so many messages, each acknowledged."""
    found: list[bytes] = []
    async for message in c:
        async with message:
            found.append(message.body)
        if len(found) == count:
            return found
    return found


def stored(broker: FakeBroker, topic: str = "T") -> dict[int, int]:
    """What the broker has of the group's progress, by queue."""
    return {queue_id: at for (group, of, queue_id), at in broker.offsets.items() if (group, of) == ("G", topic)}


# what comes


def test_all_messages_come_in_the_order_of_their_queue(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 100)

    fill(broker, 100)
    assert cluster.run(consume) == [b"%d" % number for number in range(100)]


def test_a_message_comes_within_moments_of_being_stored(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> float:
        async with consumer(cluster) as c:
            await asyncio.sleep(40)
            broker.store("T", 0, b"hi")
            began = cluster.sim.now_s
            await bodies(c, 1)
            return cluster.sim.now_s - began

    fill(broker, 0)
    assert cluster.run(consume) < 0.6


def test_only_wanted_tags_come_even_when_their_hash_codes_collide(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, {"T": "Aa || other"}) as c:
            return [message.body for message in await c.get_many(timeout_ms=5000)]

    fill(broker, 0)
    for tag in ("Aa", "BB", "unwanted"):  # "Aa" and "BB" have the same hash code
        broker.store("T", 0, tag.encode(), f"TAGS\x01{tag}")
    assert cluster.run(consume) == [b"Aa"]
    assert stored(broker) == {0: 0}, "what was handed out last is not acknowledged"


def test_several_topics_come_each_with_its_tags(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> set[bytes]:
        async with consumer(cluster, {"T": "a", "U": "*"}) as c:
            return set(await bodies(c, 4))

    fill(broker, 2, "T", properties="TAGS\x01b")
    fill(broker, 2, "T", properties="TAGS\x01a")
    fill(broker, 2, "U")
    assert cluster.run(consume) == {b"0", b"1"}


def test_a_topic_that_is_created_later_is_consumed_then(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, "later") as c:
            await asyncio.sleep(50)
            fill(broker, 1, "later")
            began = cluster.sim.now_s
            found = await bodies(c, 1)
            assert cluster.sim.now_s - began < 4
            return found

    assert cluster.run(consume) == [b"0"]


def test_without_a_name_server_the_consumer_does_not_start(cluster: FakeCluster) -> None:
    async def consume() -> None:
        async with Consumer("10.0.0.7:9876", "G", "T", client_id=f"{CLIENT}@test"):
            pass

    cluster.sim.host("10.0.0.7").boot()
    with pytest.raises(ConnectionClosed):
        cluster.run(consume)
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("topics", [[], {}])
def test_a_consumer_needs_a_topic(topics: Any) -> None:
    with pytest.raises(ConfigError):
        Consumer(NAME_SERVER, "G", topics, client_id=CLIENT)


def test_a_name_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(MessageError):
        Consumer(NAME_SERVER, "no group", "T", client_id=CLIENT)
    with pytest.raises(MessageError):
        Consumer(NAME_SERVER, "G", "no topic", client_id=CLIENT)


# settling


def test_asking_for_the_next_message_acknowledges_the_one_before(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            async for message in c:
                if message.body == b"2":
                    return

    fill(broker, 5)
    cluster.run(consume)
    assert stored(broker) == {0: 2}


def test_the_end_of_the_block_acknowledges_at_once(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)

    fill(broker, 5)
    cluster.run(consume)
    assert stored(broker) == {0: 3}


def test_what_was_not_acknowledged_comes_to_the_next_consumer(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            iteration = aiter(c)
            one, two, three = [await anext(iteration) for _ in range(3)]  # asking for the next one acknowledged two
            del one, two, three
        async with consumer(cluster) as c:
            return await bodies(c, 2)

    fill(broker, 4)
    assert cluster.run(consume) == [b"2", b"3"]


def test_progress_waits_for_the_lowest_message_not_done(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            zero, one, two, three = await c.get_many(4)
            for message in (one, three, zero):
                message.ack()
            await asyncio.sleep(6)
            assert stored(broker) == {0: 2}
            two.ack()
            await asyncio.sleep(6)
            assert stored(broker) == {0: 4}

    fill(broker, 4)
    cluster.run(consume)


def test_several_tasks_acknowledge_only_their_own(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def first_only(c: Consumer) -> None:
        async for _ in c:
            await asyncio.sleep(1_000)

    async def consume() -> None:
        async with consumer(cluster) as c:
            stuck = asyncio.create_task(first_only(c))
            await asyncio.sleep(1)
            await bodies(c, 3)
            stuck.cancel()
            await asyncio.wait([stuck])

    fill(broker, 4)
    cluster.run(consume)
    assert stored(broker) == {} or stored(broker) == {0: 0}


def test_get_many_waits_for_the_first_and_takes_what_is_there(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await c.get_many(timeout_ms=2000) == []
            fill(broker, 5)
            assert [message.body for message in await c.get_many(3, timeout_ms=30_000)] == [b"0", b"1", b"2"]
            assert [message.body for message in await c.get_many(3)] == [b"3", b"4"]
            assert await c.get_many(timeout_ms=100) == []

    fill(broker, 0)
    cluster.run(consume)
    assert stored(broker) == {0: 5}


def test_iteration_ends_when_the_consumer_is_closed(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async def iterate(c: Consumer) -> list[bytes]:
            return [message.body async for message in c]

        async with consumer(cluster) as c:
            task = asyncio.create_task(iterate(c))
            await asyncio.sleep(1)
        assert await c.get_many() == []
        return await task

    fill(broker, 2)
    assert cluster.run(consume) == [b"0", b"1"]


def test_nothing_of_a_closed_consumer_is_left(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            async for message in c:
                message.retry()
                break

    fill(broker, 3)
    cluster.run(consume)
    assert cluster.nothing_is_left()
    cluster.sim.run_for(200)


# what fails


@asynccontextmanager
async def failing(c: Consumer, body: bytes) -> AsyncIterator[ReceivedMessage]:
    """The message, which has failed once when the block begins."""
    async for message in c:
        async with message:
            if message.body == body and not message.reconsume_times:
                raise ValueError("cannot book")
        if message.body == body and message.reconsume_times:
            yield message
            return


def test_a_failed_message_is_sent_back_and_comes_again_from_the_retry_topic(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> ReceivedMessage:
        async with consumer(cluster, max_reconsume_times=7) as c, failing(c, b"1") as message:
            return message

    fill(broker, 3)
    again = cluster.run(consume)
    assert (again.topic, again.queue.topic, again.reconsume_times) == ("T", "%RETRY%G", 1)
    (request,) = broker.requests[SEND_BACK]
    original = broker.log.queues["T", 0][1]
    assert request.fields == {
        "offset": str(original.physical_offset),
        "group": "G",
        "delayLevel": "0",
        "originMsgId": original.offset_message_id,
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "7",
        "bname": "broker-a",
    }
    assert stored(broker) == {0: 3}
    assert stored(broker, "%RETRY%G") == {0: 1}


def test_a_message_whose_broker_does_not_take_it_back_is_sent_anew(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> ReceivedMessage:
        async with consumer(cluster) as c, failing(c, b"1") as message:
            return message

    fill(broker, 2, properties="TAGS\x01a\x02UNIQ_KEY\x01U\x02REAL_TOPIC\x01X")
    broker.script[SEND_BACK] = [1]
    again = cluster.run(consume)
    assert (again.topic, again.tags, again.message_id, again.reconsume_times) == ("T", "a", "U", 1)
    (request,) = broker.requests[RequestCode.SEND_MESSAGE_V2]
    assert (request.fields["a"], request.fields["b"]) == ("CLIENT_INNER_PRODUCER", "%RETRY%G")
    assert (request.fields["j"], request.fields["l"]) == ("1", "16")
    assert again.properties["DELAY"] == "3"
    assert "REAL_TOPIC" not in again.properties


@pytest.mark.parametrize(("level", "delay", "times_max"), [(0, "3", "16"), (5, "5", "16"), (-1, "-1", "0")])
def test_a_consumer_may_say_how_long_a_message_waits(
    cluster: FakeCluster, broker: FakeBroker, level: int, delay: str, times_max: str
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.retry(level)
            await asyncio.sleep(1)

    fill(broker, 2)
    broker.script[SEND_BACK] = [1]
    cluster.run(consume)
    assert {request.fields["delayLevel"] for request in broker.requests[SEND_BACK]} == {str(level)}
    (anew,) = broker.requests[RequestCode.SEND_MESSAGE_V2]
    assert split_properties(anew.fields["i"])["DELAY"] == delay
    assert (anew.fields["j"], anew.fields["l"]) == ("1", times_max), "a dead letter is one that had a try too many"


def test_the_end_waits_until_what_failed_is_taken_back(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.retry()

    fill(broker, 2)
    cluster.run(consume)
    assert len(broker.requests[SEND_BACK]) == 2
    assert stored(broker) == {0: 2}


def test_the_end_waits_three_seconds_at_most_for_that(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> float:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.retry()
            return cluster.sim.now_s

    fill(broker, 2)
    broker.script[SEND_BACK] = [SILENCE] * 2
    began_s = cluster.run(consume)
    assert cluster.sim.now_s - began_s < 4
    assert stored(broker) == {0: 0}


def test_a_message_that_nobody_takes_back_comes_again_here_after_five_seconds(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> ReceivedMessage:
        async with consumer(cluster) as c, failing(c, b"1") as message:
            assert 5 <= cluster.sim.now_s - began_s < 6
            return message

    fill(broker, 2)
    broker.script[SEND_BACK] = [1]
    broker.script[RequestCode.SEND_MESSAGE_V2] = [14] * 9
    began_s = cluster.sim.now_s
    again = cluster.run(consume)
    assert (again.queue.topic, again.reconsume_times) == ("T", 1)
    assert stored(broker) == {0: 2}


def test_progress_does_not_pass_a_message_that_is_still_to_come_again(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            zero, one, two = await c.get_many(3)
            zero.ack()
            one.retry()
            two.ack()
            await asyncio.sleep(3)

    fill(broker, 3)
    broker.script[SEND_BACK] = [1]
    broker.script[RequestCode.SEND_MESSAGE_V2] = [14] * 9
    cluster.run(consume)
    assert stored(broker) == {0: 1}


def test_a_message_whose_body_is_damaged_goes_the_way_of_failed_ones(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            found = await bodies(c, 1)
            await asyncio.sleep(1)
            return found

    fill(broker, 0)
    broker.store("T", 0, b"junk", sys_flag=1)
    broker.store("T", 0, b"hi")
    assert cluster.run(consume) == [b"hi"]
    assert len(broker.requests[SEND_BACK]) == 1
    assert "damaged" in caplog.text


# the group


def members(cluster: FakeCluster, *hosts: str) -> list[Consumer]:
    """One running member of the group on each host."""
    started: list[Consumer] = []
    for address in hosts:
        host = cluster.sim.host(address)
        host.boot()
        started.append(consumer(cluster, host=host))

        async def stay(member: Consumer = started[-1]) -> None:
            async with member:
                await asyncio.sleep(10_000)

        host.start(stay)
        cluster.sim.run_for(1)
    return started


def of_topic(member: Consumer) -> set[int]:
    return {queue.queue_id for queue in member.assigned() if queue.topic == "T"}


def test_a_second_member_takes_half_of_the_queues_at_once(cluster: FakeCluster, broker: FakeBroker) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)
    assert (of_topic(one), of_topic(two)) == ({0, 1}, {2, 3})


def test_a_member_that_leaves_gives_its_queues_to_the_others_at_once(cluster: FakeCluster, broker: FakeBroker) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)

    async def leave() -> None:
        await one.__aexit__(None, None, None)

    cluster.run(leave)
    cluster.sim.run_for(1)
    assert of_topic(two) == {0, 1, 2, 3}


def test_a_member_that_dies_gives_its_queues_to_the_others_at_once(cluster: FakeCluster, broker: FakeBroker) -> None:
    fill(broker, 0, queues=4)
    _, two = members(cluster, CLIENT, OTHER_CLIENT)
    cluster.client.kill()
    cluster.sim.run_for(1)
    assert of_topic(two) == {0, 1, 2, 3}


def test_a_queue_s_new_owner_goes_on_where_the_old_one_was(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as one:
            await bodies(one, 8)
            await asyncio.sleep(6)
            cluster.sim.host(OTHER_CLIENT).boot()
            async with consumer(cluster, host=cluster.sim.host(OTHER_CLIENT)) as two:
                await asyncio.sleep(1)
                fill(broker, 8, queues=4)
                await asyncio.sleep(1)
                assert [message.queue.queue_id for message in await one.get_many()] == [0, 0, 1, 1]
                assert [message.queue.queue_id for message in await two.get_many()] == [2, 2, 3, 3]

    fill(broker, 8, queues=4)
    cluster.run(consume)


def test_who_was_forgotten_by_a_restarted_broker_says_so_before_it_gives_up_queues(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    (one,) = members(cluster, CLIENT)
    broker.host.kill()
    broker.start()
    cluster.sim.run_for(25)
    assert of_topic(one) == {0, 1, 2, 3}
    assert list(broker.members["G"]) == [f"{CLIENT}@test"]


def test_heartbeats_say_what_the_group_wants_to_masters_and_slaves(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, {"T": "a||b"}, start=datetime(2026, 11, 1, tzinfo=UTC)):
            await asyncio.sleep(61)

    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    fill(broker, 0)
    cluster.run(consume)
    for at in (broker, slave):
        assert len(at.requests[RequestCode.HEART_BEAT]) >= 3
        heartbeat = parse(at.requests[RequestCode.HEART_BEAT][-1].body, Heartbeat.from_json)
        (data,) = heartbeat.consumers
        assert (heartbeat.client_id, data.group, data.consume_from) == (f"{CLIENT}@test", "G", FROM_TIMESTAMP)
        wanted = {subscription.topic: subscription.expression for subscription in data.subscriptions}
        assert wanted == {"T": "a||b", "%RETRY%G": "*"}
        (good_bye,) = at.requests[RequestCode.UNREGISTER_CLIENT]
        assert good_bye.fields == {"clientID": f"{CLIENT}@test", "consumerGroup": "G"}


def test_progress_is_stored_before_the_others_hear_that_a_member_leaves(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)

    fill(broker, 3)
    order: list[int] = []
    broker.on_request = lambda request: order.append(request.code)
    cluster.run(consume)
    assert order.index(RequestCode.UPDATE_CONSUMER_OFFSET) < order.index(RequestCode.UNREGISTER_CLIENT)


# where to start


@pytest.mark.parametrize(("start", "expected"), [("first", b"0"), ("last", b"later"), ("time", b"2")])
def test_a_new_group_starts_where_it_was_told_to(
    cluster: FakeCluster, broker: FakeBroker, start: str, expected: bytes
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, start=moment if start == "time" else start) as c:
            broker.store("T", 0, b"later")
            return await bodies(c, 1)

    fill(broker, 2)
    cluster.sim.run_for(10)
    moment = datetime.fromtimestamp(broker.host.now_ms() / 1000, UTC)
    broker.store("T", 0, b"2")
    assert cluster.run(consume) == [expected]


def test_a_new_group_starts_at_the_first_message_that_is_left(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 9)
    broker.log.removed["T", 0] = 5
    assert cluster.run(consume) == [b"5"]
    assert cluster.sim.now_s < 9, "without a detour over an illegal offset"


def test_a_queue_whose_start_cannot_be_found_is_tried_again_with_the_next_division(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 1)
    broker.script[RequestCode.QUERY_CONSUMER_OFFSET] = [1] * 9
    assert cluster.run(consume) == [b"0"]


# pulling


def test_no_more_is_taken_than_the_limits_allow(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, limits=Limits(count_max=100)) as c:
            await asyncio.sleep(10)
            pulls = len(broker.requests[RequestCode.PULL_MESSAGE])
            assert 100 < len(await c.get_many(1000)) <= 132
            await c.get_many(timeout_ms=3000)
            assert len(broker.requests[RequestCode.PULL_MESSAGE]) > pulls

    fill(broker, 1000)
    cluster.run(consume)


def test_an_illegal_offset_is_set_back_after_ten_seconds(cluster: FakeCluster, broker: FakeBroker) -> None:
    """And is not stored any more until then, even where the broker has set it back by itself."""

    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            broker.offsets["G", "T", 0] = 3
            await asyncio.sleep(9)
            assert stored(broker) == {0: 3}
            assert len([one for one in broker.requests[RequestCode.PULL_MESSAGE] if one.fields["topic"] == "T"]) == 1
            found = await bodies(c, 1)
            assert stored(broker) == {0: 3}, "backwards"
            broker.store("T", 0, b"new")
            return found

    fill(broker, 3)
    broker.offsets["G", "T", 0] = 500
    cluster.sim.loop.call_later(60, lambda: broker.store("T", 0, b"new"))
    assert cluster.run(consume) == [b"new"]


def test_a_pull_that_fails_is_said_once_and_tried_each_second(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 1)
    broker.script[RequestCode.PULL_MESSAGE] = [1] * 4
    with caplog.at_level(logging.WARNING):
        assert cluster.run(consume) == [b"0"]
    assert len([line for line in caplog.messages if line.startswith("pulling T@broker-a:0 fails")]) == 1


def test_a_broker_that_does_not_hold_pulls_is_asked_once_a_second(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster):
            broker.script[RequestCode.PULL_MESSAGE] = []
            await asyncio.sleep(20)

    fill(broker, 0)
    broker.holds = False
    cluster.run(consume)
    topic_pulls = [one for one in broker.requests[RequestCode.PULL_MESSAGE] if one.fields["topic"] == "T"]
    assert 19 <= len(topic_pulls) <= 22


# master and slave


@pytest.fixture
def slave(cluster: FakeCluster, broker: FakeBroker) -> FakeBroker:
    return cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)


def pulls_of(broker: FakeBroker, topic: str = "T") -> int:
    return sum(request.fields["topic"] == topic for request in broker.requests[RequestCode.PULL_MESSAGE])


def test_the_broker_that_the_last_answer_suggested_is_pulled_from(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 40)
            before = pulls_of(slave)
            slave.suggested_broker_id = 0
            broker.suggested_broker_id = 0
            await bodies(c, 40)
            assert pulls_of(slave) <= before + 2, "it went back to the master"

    fill(broker, 80)
    broker.pull_max = slave.pull_max = 8
    broker.suggested_broker_id = slave.suggested_broker_id = 1
    cluster.run(consume)
    assert pulls_of(slave) >= 3
    for request in slave.requests[RequestCode.PULL_MESSAGE]:
        assert not int(request.fields["sysFlag"]) & COMMIT_OFFSET, "a slave keeps no progress from pulls"


def test_reading_goes_on_from_the_slave_when_the_master_dies_and_returns_to_it_later(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await bodies(c, 2) == [b"0", b"1"]
            broker.host.kill()
            cluster.listed.discard(broker.address)
            slave.store("T", 0, b"replicated")
            began = cluster.sim.now_s
            assert await bodies(c, 1) == [b"replicated"]
            assert cluster.sim.now_s - began < 3
            await asyncio.sleep(6)
            assert stored(slave) == {0: 3}, "progress is kept where it can be"

            cluster.restart(broker)
            await asyncio.sleep(60)
            assert stored(broker) == {0: 3}, "the master is told what only the slave has heard"
            before = pulls_of(slave)
            broker.store("T", 0, b"back")
            assert await bodies(c, 1) == [b"back"]
            assert pulls_of(slave) == before

    fill(broker, 2)
    cluster.run(consume, within_s=600)


def test_a_master_that_falls_silent_holds_up_reading_for_half_a_minute_at_most(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> list[float]:
        delays_s: list[float] = []
        async with consumer(cluster) as c:
            await bodies(c, 1)
            broker.host.crash(silently=True)  # and the name server goes on listing it
            for _ in range(20):
                slave.store("T", 0, b"hi")
                began = cluster.sim.now_s
                await bodies(c, 1)
                delays_s.append(cluster.sim.now_s - began)
                await asyncio.sleep(10)
        return delays_s

    fill(broker, 1)
    first, *later = cluster.run(consume, within_s=1000)
    assert first < 35
    assert max(later) < 4
    assert sum(delay_s > 1 for delay_s in later) < 8, "only now and then is the master tried again"


def test_a_slave_behind_the_offset_is_not_asked_without_pause(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            broker.host.kill()
            cluster.listed.discard(broker.address)
            slave.is_behind = True
            before = pulls_of(slave)
            await asyncio.sleep(20)
            assert pulls_of(slave) - before <= 21

    fill(broker, 2)
    cluster.run(consume)


def test_when_nobody_can_store_progress_it_is_kept_until_somebody_can(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            broker.host.kill()
            await asyncio.sleep(30)
            cluster.restart(broker)
            await asyncio.sleep(15)
            assert stored(broker) == {0: 2}

    fill(broker, 2)
    cluster.run(consume)


# administrators


def ask(cluster: FakeCluster, broker: FakeBroker, request: Command) -> Command:
    """What the group's member answers to a broker."""

    async def call() -> Command:
        return await next(iter(broker.members["G"].values())).call(request, 5000)

    return cluster.run(call, on=broker.host)


def test_a_reset_takes_the_group_back_to_the_offsets_given(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> tuple[list[bytes], list[bytes]]:
        async with consumer(cluster) as c:
            before = await bodies(c, 4)
            table = ObjectKeys({'{"brokerName":"broker-a","queueId":0,"topic":"T"}': 1})
            request = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "G", "timestamp": "0"})
            request.body = dump_dialect({"offsetTable": table})
            broker.members["G"][f"{CLIENT}@test"].notify(request)
            return before, await bodies(c, 3)

    fill(broker, 4)
    assert cluster.run(consume) == ([b"0", b"1", b"2", b"3"], [b"1", b"2", b"3"])
    assert stored(broker) == {0: 4}


def test_a_member_tells_how_far_it_is(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            await asyncio.sleep(1_000)

    fill(broker, 4)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    answer = ask(cluster, broker, Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "G"}))
    assert answer.body == (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3}}'
    )
    running = ask(cluster, broker, Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G"}))
    assert b'"cachedMsgCount":1' in running.body
    other = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "other"})
    assert ask(cluster, broker, other).code == ResponseCode.SYSTEM_ERROR


def test_assigned_tells_the_queues_of_this_member(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> frozenset[MessageQueue]:
        async with consumer(cluster) as c:
            return c.assigned()

    fill(broker, 0, queues=2)
    expected = {
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-a", 1),
        MessageQueue("%RETRY%G", "broker-a", 0),
    }
    assert cluster.run(consume) == expected


@pytest.mark.parametrize(("settled_by", "result"), [("ack", b"CR_SUCCESS"), ("retry", b"CR_LATER")])
def test_a_message_that_an_administrator_wants_consumed_comes_beside_the_others(
    cluster: FakeCluster, broker: FakeBroker, settled_by: str, result: bytes
) -> None:
    """It is another group's, or was consumed long ago: no progress follows, and nothing is sent back."""
    came: list[ReceivedMessage] = []

    async def consume() -> None:
        async with consumer(cluster) as c:
            async for message in c:
                came.append(message)
                getattr(message, settled_by if message.topic == "Other" else "ack")()

    fill(broker, 2)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    record = broker.store("Other", 3, b"directly")
    fields = {"consumerGroup": "G", "clientId": f"{CLIENT}@test", "msgId": "m", "brokerName": "broker-a"}
    answer = ask(cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record.encode()))
    assert answer.code == 0
    assert b'"consumeResult":"%b"' % result in answer.body
    assert [message.body for message in came] == [b"0", b"1", b"directly"]
    assert came[-1].queue == MessageQueue("Other", "broker-a", 3)
    cluster.sim.run_for(30)
    assert (stored(broker, "Other"), stored(broker), broker.requests[SEND_BACK]) == ({}, {0: 2}, [])


def test_a_message_that_takes_too_long_or_is_for_another_group_is_not_said_to_be_consumed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster):
            await asyncio.sleep(1_000)

    fill(broker, 1)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    body = broker.store("Other", 0, b"directly").encode()
    fields = {"consumerGroup": "other"}
    assert ask(cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)).code == 1
    with pytest.raises(CallTimeout):
        ask(cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G"}, body))
    cluster.sim.run_for(30)


def test_a_reset_that_no_broker_takes_now_is_carried_out_later(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await bodies(c, 3) == [b"0", b"1", b"2"]
            await asyncio.sleep(6)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_BUSY] * 2
            c._division.reset({MessageQueue("T", "broker-a", 0): 0})
            await asyncio.sleep(45)
            assert await bodies(c, 3) == [b"0", b"1", b"2"]

    fill(broker, 3)
    cluster.run(consume)
