"""Groups of Java's, Go's and our members that come, leave and crash under load, at our broker.

Every message is consumed at least once, those of a queue in their order where that is wanted, and in
the end the group has no lag.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from roquet import Producer, PullConsumer
from tests.interop.apache import (
    Client,
    Version,
    require_go,
    require_java,
    start_driver,
    start_go_client,
)
from tests.interop.client.target import unique
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic
from tests.interop.taken import until

pytestmark = pytest.mark.interop

QUEUES: Final = 6
MEMBERS_MAX: Final = 4
EVENTS: Final = 8
PER_EVENT: Final = 60
"""So many messages are sent at least between two events."""
PAUSE_S: Final = 0.005
"""Between two sends."""
ENDLESS: Final = 10**9


@pytest.fixture(scope="module")
def broker() -> Iterator[RoquetBroker]:
    require_java()
    require_go()
    with RoquetNameServer() as names, RoquetBroker(names.address) as running:
        yield running


def java(version: Version, namesrv: str, topic: str, group: str, *, ordered: bool) -> Client:
    options = ("--orderly",) if ordered else ()
    return start_driver(
        version,
        "consume",
        namesrv,
        topic,
        group,
        ENDLESS,
        10 * SECONDS,
        "--heartbeat",
        1000,
        *options,
    )


def go(namesrv: str, topic: str, group: str, *, ordered: bool) -> Client:
    options = ("--orderly",) if ordered else ()
    return start_go_client("consume", namesrv, topic, group, ENDLESS, 10 * SECONDS, *options)


def ours(namesrv: str, topic: str, group: str, *, ordered: bool) -> Client:
    member = Client("ours")
    program = Path(__file__).with_name("member.py")
    way = "ordered" if ordered else "concurrent"
    member.launch([sys.executable, "-P", str(program), namesrv, topic, group, way])
    return member


KINDS: Final[dict[str, Callable[..., Client]]] = {
    "java-4": partial(java, Version.V4),
    "java-5": partial(java, Version.V5),
    "go": go,
    "ours": ours,
}
GIVING_LOCKS_BACK: Final = KINDS.keys() - {"go"}
"""Go's client leaves without unlocking its queues: others wait a minute for them."""


def consumed(member: Client) -> list[dict[str, Any]]:
    """What it printed of messages; Go's prints also that it was stopped."""
    return [line for line in member.lines() if "queueOffset" in line]


class Group:
    """The members that run, and all that ever did: each keeps what it printed."""

    def __init__(self, namesrv: str, topic: str, *, ordered: bool) -> None:
        self._start = partial(
            self._started, namesrv=namesrv, topic=topic, group=f"G-{topic}", ordered=ordered
        )
        self._all = ExitStack()
        self.running: list[tuple[str, Client]] = []
        self.history: list[tuple[str, Client]] = []
        self.events: list[str] = []

    def _started(self, kind: str, **options: object) -> Client:
        member = self._all.enter_context(KINDS[kind](**options))
        member.wait_started()
        return member

    def join(self, kind: str) -> None:
        member = kind, self._start(kind)
        self.running.append(member)
        self.history.append(member)
        self.events.append(f"{kind} joins")

    def leave(self, index: int, *, crashes: bool) -> None:
        kind, member = self.running.pop(index)
        if crashes:
            member.kill()
        else:
            member.stop()
        self.events.append(f"{kind} {'crashes' if crashes else 'leaves'}")

    def step(self, chance: random.Random, kinds: Set[str], *, crashes: bool) -> None:
        """Somebody joins, or somebody leaves or crashes."""
        count = len(self.running)
        if count < 2 or (count < MEMBERS_MAX and chance.random() < 0.5):
            self.join(chance.choice(sorted(kinds)))
        else:
            self.leave(chance.randrange(count), crashes=crashes and chance.random() < 0.5)

    def bodies(self) -> set[str]:
        """Of all messages that were consumed."""
        return {line["body"] for _, member in self.history for line in consumed(member)}

    def orders(self) -> Iterator[tuple[str, int, list[int]]]:
        """Of each member and queue the offsets as they came."""
        for kind, member in self.history:
            by_queue: defaultdict[int, list[int]] = defaultdict(list)
            for line in consumed(member):
                by_queue[line["queueId"]].append(line["queueOffset"])
            for queue, offsets in by_queue.items():
                yield kind, queue, offsets

    def close(self) -> None:
        self._all.close()


async def lag(namesrv: str, topic: str, group: str) -> int:
    async with PullConsumer(namesrv) as reader:
        queues = await reader.queues(topic)
        return sum(
            [
                await reader.max_offset(queue) - (await reader.committed(group, queue) or 0)
                for queue in queues
            ]
        )


async def run(
    broker: RoquetBroker,
    seed: int,
    kinds: Set[str] = KINDS.keys(),
    *,
    ordered: bool,
    crashes: bool,
) -> None:
    chance = random.Random(seed)
    namesrv, topic = broker.namesrv, unique(f"mixed-{seed}-{ordered}-{crashes}")
    create_topic(broker, topic, QUEUES)
    sent: set[str] = set()
    is_over = asyncio.Event()

    async def send() -> None:
        async with Producer(namesrv, "P", timeout_ms=60_000) as producer:
            while not is_over.is_set():
                body = str(len(sent))
                await producer.send(topic, body.encode())
                sent.add(body)
                await asyncio.sleep(PAUSE_S)

    with closing(Group(namesrv, topic, ordered=ordered)) as group:
        sending = asyncio.create_task(send())
        for kind in chance.sample(sorted(kinds), len(kinds)):
            await asyncio.to_thread(group.join, kind)
        for _ in range(EVENTS):
            await asyncio.to_thread(group.step, chance, kinds, crashes=crashes)
            enough = len(sent) + PER_EVENT
            while len(sent) < enough and not sending.done():
                await asyncio.sleep(PAUSE_S)
        is_over.set()
        await sending
        await asyncio.to_thread(group.join, "ours")
        while len(group.running) > 1:
            await asyncio.to_thread(group.leave, 0, crashes=False)
        await until(lambda: sent <= group.bodies(), SECONDS)
        async with asyncio.timeout(SECONDS):
            while await lag(namesrv, topic, f"G-{topic}"):
                await asyncio.sleep(0.2)
        await asyncio.to_thread(group.leave, 0, crashes=False)

        assert group.bodies() == sent, group.events
        assert await lag(namesrv, topic, f"G-{topic}") == 0
        if ordered:
            for kind, queue, offsets in group.orders():
                breaks = [(one, two) for one, two in pairwise(offsets) if two != one + 1]
                # Only where the queue was another member's meanwhile.
                assert len(breaks) <= len(group.events), (kind, queue, breaks, group.events)


async def test_members_of_all_kinds_come_leave_and_crash(broker: RoquetBroker) -> None:
    await run(broker, 1, ordered=False, crashes=True)


async def test_in_order_members_come_and_leave(broker: RoquetBroker) -> None:
    await run(broker, 1, GIVING_LOCKS_BACK, ordered=True, crashes=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_members_of_all_kinds_come_leave_and_crash_in_many_ways(
    broker: RoquetBroker, seed: int, ordered: bool
) -> None:
    """The queues of a member that crashed in order stay locked for a minute."""
    await run(broker, seed, ordered=ordered, crashes=True)
