"""No request holds the broker: what goes through thousands of things lets others be answered in
between.
"""

from __future__ import annotations

import tracemalloc
from typing import Final

import pytest

from roquet.broker.delivery.long_polls import WOKEN_AT_ONCE
from roquet.broker.handlers.admin.groups import GroupAdmin
from roquet.broker.handlers.member_status import MemberStatus
from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.offsets.group_lag import GroupLag
from roquet.protocol.bodies.tables import (
    ConsumerData,
    GroupConfig,
    Heartbeat,
    Subscription,
    TopicConfig,
)
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection
from roquet.transport.slices import STEPS_MAX, Slices
from tests.broker.harness import Client, World
from tests.broker.served import send, serving, started
from tests.simulation.simulation import Simulation

GROUPS: Final = 1200


@pytest.fixture
def crowded(world: World) -> World:
    """A broker with many groups that have progress in a topic."""
    return with_groups(world, GROUPS)


def with_groups(world: World, count: int) -> World:
    def fill() -> None:
        for number in range(count):
            world.groups.update(GroupConfig(f"g{number}"))
            world.offsets.commit(f"g{number}", "TBW102", 0, 0)

    world.on_broker(fill)
    return world


def test_all_groups_are_gone_through_in_several_turns_of_the_loop(crowded: World) -> None:
    before = crowded.slices.count
    crowded.client().ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert crowded.slices.count - before > GROUPS // STEPS_MAX


def test_what_is_made_in_slices_says_what_one_answer_said(crowded: World) -> None:
    client = crowded.client()
    crowded.put("TBW102", 0)
    stats = client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert stats["totalDiff"] == GROUPS
    tables = {name: table for each in stats["consumeStatsList"] for name, table in each.items()}
    assert len(tables) == len(crowded.groups.groups)
    assert tables["g7"] == [client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g7")]
    assert tables["TOOLS_CONSUMER"] == []
    all_groups = client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert all_groups == crowded.groups.to_table().to_json()
    offsets = client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    assert offsets == {f"TBW102@g{number}": {"0": 0} for number in range(GROUPS)}


def test_the_last_step_copies_what_was_told_of_all_groups_once(world: World) -> None:
    """Of 10 MB each copy takes some ms."""
    with_groups(world, 200)
    positions = GroupLag(*_tables(world), lambda topic, group: 0.0)
    groups = GroupAdmin(
        world.config,
        world.groups,
        world.consumers,
        world.producers,
        world.offsets,
        positions,
        world.slices,
    )
    work = groups.all_consume_stats(
        Command(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    )
    tracemalloc.start()
    try:
        while True:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            next(work)
    except StopIteration as end:
        _, peak = tracemalloc.get_traced_memory()
        size = len(end.value.body)
    finally:
        tracemalloc.stop()
    assert size > 20_000
    assert peak - before < 1.5 * size


def test_the_topics_of_a_group_are_found_in_steps(world: World) -> None:
    names = [f"T{number}" for number in range(1000)]

    def fill() -> None:
        for name in names:
            world.topics.update(TopicConfig(name))
            world.offsets.commit("g", name, 0, 0)

    world.on_broker(fill)
    work, steps = GroupLag(*_tables(world), lambda topic, group: 0.0).topics_of("g"), 0
    try:
        while True:
            next(work)
            steps += 1
    except StopIteration as end:
        found = [topic.name for topic in end.value]
    assert found == names
    assert steps >= len(names) // 100


def _tables(
    world: World,
) -> tuple[TopicRegistry, Consumers[Connection], ConsumerOffsets, Store, str]:
    return world.topics, world.consumers, world.offsets, world.store, world.config.broker_name


def test_a_large_group_that_loses_many_members_at_once_hears_of_it_once_or_twice(
    world: World,
) -> None:
    crowd = [world.client(f"10.1.{number // 250}.{number % 250 + 1}") for number in range(300)]
    body = dump_bytes(
        Heartbeat("c", (), (ConsumerData("g", subscriptions=(Subscription("T"),)),)).to_json()
    )
    for member in crowd:
        assert member.call(RequestCode.HEART_BEAT, body).code == 0
    world.sim.run_for(1)
    assert all(member.told for member in crowd), "who came last was told, too"
    before = [len(member.told) for member in crowd]

    def leave() -> None:
        for connection in list(world.consumers.groups["g"].members)[-30:]:
            world.members.connection_closed(connection)

    world.on_broker(leave)
    world.sim.run_for(1)
    news = [len(member.told) - told for member, told in zip(crowd, before, strict=True)][:-30]
    assert {*news} <= {1, 2}


def test_the_members_of_a_group_are_asked_where_they_stand_in_slices(world: World) -> None:
    slices, code = Slices(), RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    world.handlers.update(MemberStatus(world.consumers, slices, world.config.limits).handlers())

    def stand(request: Command, connection: Connection) -> Command:
        return request.answer(0, body=b'{"messageQueueTable":{}}')

    for number in range(40):
        member = Client(world.sim, world.sim.host(f"10.1.0.{number + 1}"), handlers={code: stand})
        group = ConsumerData("g", subscriptions=(Subscription("T"),))
        member.call(
            RequestCode.HEART_BEAT, dump_bytes(Heartbeat(f"c{number}", (), (group,)).to_json())
        )
    status = world.client().ask(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g"
    )
    assert status["consumerTable"] == {f"c{number}": {} for number in range(40)}
    assert slices.count == 2, "they are asked in one, and told of in another"


def test_thousands_of_held_pulls_are_woken_a_part_in_each_turn(sim: Simulation) -> None:
    broker = serving(started(sim, "10.0.0.1"))
    client = Client(sim, sim.host("10.0.0.9"))
    assert send(client, b"first").code == 0
    count, answers = 3 * WOKEN_AT_ONCE + 5, list[int]()
    header = PullHeader("g", "T", 0, 1, 32, 2 | 4, 0, 15_000, "*", 1, "TAG")

    async def pull() -> None:
        answer = await client.channels.call(
            client.broker, Command(RequestCode.PULL_MESSAGE, header.write()), 60_000
        )
        answers.append(answer.code)

    for _ in range(count):
        client.host.start(pull)
    sim.run_for(1)
    assert broker.parts.long_polls.count == count
    assert send(client, b"second").code == 0
    sim.run_for(0.1)
    assert answers == [ResponseCode.SUCCESS] * count
    assert broker.parts.long_polls.count == 0


def test_thousands_of_held_pulls_whose_time_is_over_are_answered(sim: Simulation) -> None:
    broker = serving(started(sim, "10.0.0.1"))
    client = Client(sim, sim.host("10.0.0.9"))
    assert send(client, b"first").code == 0
    count, answers = 600, list[int]()
    header = PullHeader("g", "T", 0, 1, 32, 2 | 4, 0, 4000, "*", 1, "TAG")

    async def pull() -> None:
        answer = await client.channels.call(
            client.broker, Command(RequestCode.PULL_MESSAGE, header.write()), 60_000
        )
        answers.append(answer.code)

    for _ in range(count):
        client.host.start(pull)
    sim.run_for(12)
    assert answers == [ResponseCode.PULL_NOT_FOUND] * count
    assert broker.parts.long_polls.count == 0
