"""Our allocation strategies beside Apache's: the same queues for every member, and mixed groups."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    allocate,
)
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.protocol.records.message import MessageQueue
from tests.interop.apache import Version, require_java
from tests.interop.asked import AskedProgram
from tests.interop.processes import SECONDS, SEND_MS_MAX
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic
from tests.interop.scene import Push
from tests.interop.stage import Stage

pytestmark = pytest.mark.interop

REFUSED: Final = "!IllegalArgumentException"
"""Apache's answer where a strategy refuses its arguments."""


@pytest.fixture(scope="module")
def apache() -> Iterator[AskedProgram]:
    """Apache's strategies of 4.9.7."""
    require_java()
    # Java 17 and older hash the bytes of the platform's charset.
    with AskedProgram("roquet.Allocations", Version.V4, "-Dfile.encoding=UTF-8") as running:
        yield running


@dataclass(frozen=True)
class Choice:
    """One strategy, as the Java side is told of it and as it is here."""

    word: str
    strategy: AllocationStrategy


def room_of(name: str) -> str:
    return name.partition(".")[0]


def nearby(inner: Choice) -> Choice:
    return Choice(
        f"NEARBY:{inner.word}",
        MachineRoomNearby(inner.strategy, lambda queue: room_of(queue.broker_name), room_of),
    )


def encoded(texts: Iterable[str]) -> str:
    return ",".join(quote(text, "") for text in texts)


def line_of(queues: Iterable[MessageQueue]) -> str:
    return ",".join(
        f"{quote(queue.topic, '')}/{quote(queue.broker_name, '')}/{queue.queue_id}"
        for queue in queues
    )


def read_queues(text: str) -> list[MessageQueue]:
    parts = [queue.split("/") for queue in text.split(",") if queue]
    return [MessageQueue(unquote_plus(t), unquote_plus(b), int(number)) for t, b, number in parts]


# Letters whose order differs between code points and UTF-16 units, and what strategies split at.
LETTERS: Final = "ab@.-\xe9\uffe6\ue000\U0001f600\U00010000"
names = st.text(LETTERS, max_size=6)
rooms = st.sampled_from(["", "north", "south", "west", "\U0001f600"])
broker_names = (
    names | st.builds("{}@{}".format, rooms, names) | st.builds("{}.{}".format, rooms, names)
)
member_ids = names | st.builds("{}.{}".format, rooms, names)
queue_lists = st.lists(
    st.builds(MessageQueue, st.just("T"), broker_names, st.integers(0, 20)),
    max_size=40,
    unique=True,
) | st.builds(
    lambda brokers, count: [MessageQueue("T", each, n) for each in brokers for n in range(count)],
    st.lists(broker_names, min_size=1, max_size=4, unique=True),
    st.integers(1, 16),
)
choices = st.recursive(
    st.sampled_from([Choice("AVG", Averagely()), Choice("CIRCLE", AveragelyByCircle())])
    | st.integers(1, 60).map(lambda count: Choice(f"HASH:{count}", ConsistentHash(count)))
    | st.sets(rooms.filter(bool)).map(
        lambda some: Choice(f"ROOM:{encoded(some)}", ByMachineRoom(some))
    ),
    lambda inner: inner.map(nearby),
    max_leaves=2,
)


def ours(choice: Choice, me: str, queues: list[MessageQueue], members: list[str]) -> str:
    try:
        found = allocate(choice.strategy, "G", me, queues, members)
    except ValueError:
        return REFUSED
    return f"{choice.strategy.name}\t{line_of(sorted(found))}"


def theirs(answer: str) -> str:
    name, tab, given = answer.partition("\t")
    return f"{name}{tab}{line_of(sorted(read_queues(given)))}"


@settings(max_examples=400)
@given(
    choice=choices,
    queues=queue_lists,
    members=st.lists(member_ids.filter(bool), max_size=12, unique=True),
    stranger=member_ids,
)
def test_every_member_gets_what_apache_s_strategy_gives_it(
    apache: AskedProgram,
    choice: Choice,
    queues: list[MessageQueue],
    members: list[str],
    stranger: str,
) -> None:
    asked = [*members, stranger]
    words = [encoded([me]) + f"\t{encoded(members)}\t{line_of(queues)}" for me in asked]
    answers = [apache.ask(f"{choice.word}\t{rest}") for rest in words]
    assert [ours(choice, me, queues, members) for me in asked] == list(map(theirs, answers))


@settings(max_examples=30)
@given(queues=queue_lists.filter(bool), count=st.integers(0, 9))
def test_a_configured_member_gets_what_apache_s_gives_it(
    apache: AskedProgram, queues: list[MessageQueue], count: int
) -> None:
    mine = queues[:count]
    answer = apache.ask(f"CONFIG:{line_of(mine)}\tme\tme\t{line_of(queues)}")
    assert ours(Choice("CONFIG", ByConfig(mine)), "me", queues, ["me"]) == theirs(answer)


QUEUES: Final = 16
MESSAGES: Final = 4
"""Per queue."""


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    ("word", "strategy"),
    [("HASH", ConsistentHash()), ("CIRCLE", AveragelyByCircle()), ("AVG", Averagely())],
)
def test_a_group_of_java_and_python_members_consumes_each_queue_once(
    version: Version, word: str, strategy: AllocationStrategy
) -> None:
    require_java()
    topic, group = "Mixed", f"G-{word}"
    with (
        RoquetNameServer() as server,
        RoquetBroker(server.address) as broker,
        Stage(version) as stage,
    ):
        create_topic(broker, topic, QUEUES)
        java_member = Push(stage, "java")
        java_member.call("push", namesrv=broker.namesrv, group=group, topics=topic, strategy=word)
        by_python = asyncio.run(consumed(broker, group, topic, strategy, java_member))
        by_java: dict[int, list[str]] = defaultdict(list)
        for line in java_member.messages():
            by_java[line["queueId"]].append(line["body"])
    for number in range(QUEUES):
        bodies = [f"{number}-{each}" for each in range(MESSAGES)]
        owners = [member.get(number, []) for member in (by_java, *by_python)]
        assert sorted(map(sorted, owners)) == [[], [], sorted(bodies)], f"queue {number}"
    assert all((by_java, *by_python)), "each member has some queues"


async def consumed(
    broker: RoquetBroker,
    group: str,
    topic: str,
    strategy: AllocationStrategy,
    java_member: Push,
) -> list[dict[int, list[str]]]:
    """What two Python members get beside a Java member: queue id -> bodies, for each."""
    got: list[dict[int, list[str]]] = [defaultdict(list), defaultdict(list)]

    async def take(member: Consumer, into: dict[int, list[str]]) -> None:
        async for message in member:
            into[message.queue.queue_id].append(message.body.decode())

    async with AsyncExitStack() as stack, asyncio.timeout(SECONDS):
        members = [
            await stack.enter_async_context(
                Consumer(broker.namesrv, group, topic, "earliest", strategy=strategy)
            )
            for _ in got
        ]

        def shares() -> list[set[int]]:
            mine = [
                {queue.queue_id for queue in member.assigned() if queue.topic == topic}
                for member in members
            ]
            return [*mine, java_member.assigned(topic)]

        while Counter(each for share in shares() for each in share) != Counter(range(QUEUES)):
            await asyncio.sleep(0.2)
        tasks = [
            asyncio.create_task(take(member, into))
            for member, into in zip(members, got, strict=True)
        ]
        producer = await stack.enter_async_context(
            Producer(broker.namesrv, "P", timeout_ms=SEND_MS_MAX)
        )
        name = str(broker.properties["brokerName"])
        for number in range(QUEUES):
            for each in range(MESSAGES):
                body = f"{number}-{each}".encode()
                await producer.send(topic, body, queue=MessageQueue(topic, name, number))
        total = QUEUES * MESSAGES
        while len(java_member.messages()) + count(got) < total:
            await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
    return got


def count(got: Iterable[dict[int, list[str]]]) -> int:
    return sum(len(bodies) for member in got for bodies in member.values())
