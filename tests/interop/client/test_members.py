"""Members of one group: they share the queues, and one takes over what another leaves."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

import pytest

from roquet import Consumer, MessageQueue, ReceivedMessage, allocation
from tests.interop.client.target import Target, bodies, consuming, numbers
from tests.interop.taken import take, until

pytestmark = pytest.mark.interop

STRATEGIES: dict[str, allocation.AllocationStrategy] = {
    "averagely": allocation.Averagely(),
    "by-circle": allocation.AveragelyByCircle(),
    "hash": allocation.ConsistentHash(virtual_nodes=50),
    "nearby": allocation.MachineRoomNearby(
        allocation.Averagely(),
        room_of_broker=lambda queue: "here",
        room_of_member=lambda client_id: "here",
    ),
}


HOLDER = """
import asyncio, sys
from roquet import Consumer

async def main(name_server, group, topic):
    async with Consumer(name_server, group, topic, "earliest") as consumer:
        while True:
            print("holds", (await consumer.get()).body, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
"""A program that takes messages and settles none."""


def of_topic(consumer: Consumer, topic: str) -> list[MessageQueue]:
    return sorted(queue for queue in consumer.assigned() if queue.topic == topic)


async def shared(topic: str, *members: Consumer) -> None:
    """Wait until four queues are divided among the members, each with a part of the same size."""
    share = 4 // len(members)
    await until(
        lambda: (
            [len(of_topic(member, topic)) for member in members] == [share] * len(members)
            and len({queue for member in members for queue in of_topic(member, topic)}) == 4
        )
    )


async def send(target: Target, topic: str, *sent: bytes) -> None:
    async with target.producer() as producer:
        for body in sent:
            await producer.send(topic, body)


async def test_two_members_share_the_queues(target: Target, wide: str, group: str) -> None:
    one_got: list[ReceivedMessage] = []
    two_got: list[ReceivedMessage] = []
    async with target.consumer(group, wide) as one, target.consumer(group, wide) as two:
        await shared(wide, one, two)
        async with consuming(one, one_got), consuming(two, two_got):
            await send(target, wide, *numbers(40))
            await until(lambda: len(one_got) + len(two_got) >= 40)
    assert len(one_got) == len(two_got) == 20
    assert sorted(map(int, bodies(one_got + two_got))) == list(range(40))


async def test_the_queues_of_a_member_that_leaves_go_to_the_other_at_once(
    target: Target, wide: str, group: str
) -> None:
    async with target.consumer(group, wide) as one:
        async with target.consumer(group, wide) as two:
            await shared(wide, one, two)
        # Not with the next division every 20 s.
        await until(lambda: len(of_topic(one, wide)) == 4, 10)
        await send(target, wide, *numbers(8))
        assert sorted(bodies(await take(one, 8))) == numbers(8)


async def test_what_a_leaving_member_did_not_acknowledge_comes_to_the_other(
    target: Target, wide: str, group: str
) -> None:
    async with target.consumer(group, wide) as one:
        async with target.consumer(group, wide) as two:
            await shared(wide, one, two)
            await send(target, wide, *numbers(4))
            held = [await two.get(), await two.get()]
        got = await take(one, 4)
    assert sorted(bodies(got)) == numbers(4)
    assert set(bodies(held)) < set(bodies(got))


async def test_what_a_leaving_member_acknowledged_does_not_come_again(
    target: Target, wide: str, group: str
) -> None:
    async with target.consumer(group, wide) as one:
        async with target.consumer(group, wide) as two:
            await shared(wide, one, two)
            await send(target, wide, *numbers(4))
            done = await take(two, 2)
        await until(lambda: len(of_topic(one, wide)) == 4)
        await send(target, wide, *numbers(4, 4))
        got = await take(one, 6)
    assert sorted(bodies(done) + bodies(got)) == numbers(8)


async def test_members_beyond_the_number_of_queues_have_none(
    target: Target, topic: str, group: str
) -> None:
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(target.consumer(group, topic)) for _ in range(3)]
        await until(lambda: sorted(len(of_topic(each, topic)) for each in members) == [0, 0, 1])
        (owner,) = [each for each in members if of_topic(each, topic)]
        await send(target, topic, b"one")
        assert bodies(await take(owner, 1)) == [b"one"]


async def test_a_spare_member_takes_over(target: Target, topic: str, group: str) -> None:
    async with target.consumer(group, topic) as one, target.consumer(group, topic) as other:
        await until(lambda: len(of_topic(one, topic)) + len(of_topic(other, topic)) == 1)
        owner, spare = (one, other) if of_topic(one, topic) else (other, one)
        await owner.close()
        await send(target, topic, b"one")
        assert bodies(await take(spare, 1)) == [b"one"]


@pytest.mark.parametrize("name_of_strategy", STRATEGIES)
async def test_under_each_strategy_every_message_comes_once(
    target: Target, wide: str, group: str, name_of_strategy: str
) -> None:
    strategy = STRATEGIES[name_of_strategy]
    one_got: list[ReceivedMessage] = []
    two_got: list[ReceivedMessage] = []
    async with (
        target.consumer(group, wide, strategy=strategy) as one,
        target.consumer(group, wide, strategy=strategy) as two,
    ):
        await until(
            lambda: (
                {*of_topic(one, wide), *of_topic(two, wide)} != set()
                and len(of_topic(one, wide)) + len(of_topic(two, wide)) == 4
                and not {*of_topic(one, wide)} & {*of_topic(two, wide)}
            )
        )
        async with consuming(one, one_got), consuming(two, two_got):
            await send(target, wide, *numbers(20))
            await until(lambda: len(one_got) + len(two_got) >= 20)
    assert sorted(map(int, bodies(one_got + two_got))) == list(range(20))


async def test_a_member_has_the_queues_it_is_given(target: Target, wide: str, group: str) -> None:
    async with target.producer() as producer:
        queues = await producer.queues(wide)
        given = allocation.ByConfig(queues[:2])
        async with target.consumer(group, wide, strategy=given) as consumer:
            assert of_topic(consumer, wide) == queues[:2]
            for queue in queues:
                await producer.send(wide, b"%d" % queue.queue_id, queue=queue)
            assert sorted(bodies(await take(consumer, 2))) == [b"0", b"1"]


async def test_members_of_one_group_retry_for_each_other(
    target: Target, wide: str, group: str
) -> None:
    """The retry topic has one queue, which one of the members has."""
    one_got: list[ReceivedMessage] = []
    async with target.consumer(group, wide) as one, target.consumer(group, wide) as two:
        await shared(wide, one, two)
        await send(target, wide, *numbers(4))
        failing = [await two.get(), await two.get()]
        async with consuming(one, one_got), consuming(two, one_got):
            for message in failing:
                message.retry()
            await until(lambda: len(one_got) >= 4)
    again = [message for message in one_got if message.reconsume_times]
    assert sorted(bodies(again)) == sorted(bodies(failing))


async def test_a_killed_member_s_messages_come_to_the_other(
    target: Target, wide: str, group: str
) -> None:
    """The broker notices the end of its connection."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, target.namesrv, group, wide, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    await send(target, wide, *numbers(4))
    for _ in range(4):
        assert (await program.stdout.readline()).startswith(b"holds")
    async with target.consumer(group, wide) as one:
        program.kill()
        await program.wait()
        assert sorted(bodies(await take(one, 4))) == numbers(4)


async def test_a_member_that_wants_other_messages_than_its_group_says_so(
    target: Target, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with target.consumer(group, {topic: "a"}), target.consumer(group, {topic: "b"}):
        pass
    (line,) = [line for line in caplog.messages if "have other subscriptions" in line]
    assert f"here={{'{topic}': 'b'}} others={{'{topic}': 'a'}}" in line
