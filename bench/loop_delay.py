"""How long each request, and each piece of periodic work, holds the loop of a broker that has a lot
of everything.

python -m bench.loop_delay [--results FILE]

The broker runs in this process, its clients in another. A task on the broker's loop does nothing
but wait for its next turn, and so sees how long each turn takes: what it sees beside a request is
that request's longest hold.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import uvloop

from bench import in_process, machine
from bench.in_process import TIMEOUT_MS, Clients, broker_in, serving
from roquet.broker.background import in_slices
from roquet.broker.metrics.stats import Window
from roquet.common.steps import Steps, finished
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.server import NameServer
from roquet.protocol.bodies.body import Table
from roquet.protocol.bodies.sliced import decode_table, encode_registration
from roquet.protocol.bodies.tables import (
    ConsumerData,
    GroupConfig,
    GroupTable,
    Heartbeat,
    OffsetTable,
    Subscription,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.headers.routing import RegisterBrokerHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.storage.new_record import NewRecord

TOPICS: Final = 10_000
QUEUES: Final = 8
WRITTEN: Final = 1000
"""Topics with messages; more would need more files than a process may have open."""
GROUPS: Final = 5000
MEMBERS: Final = 2000
PULLS: Final = 100_000
PULLS_OF_ONE: Final = 10_000
"""Held for one connection; a broker keeps 16 MiB of a client's requests."""
BEAT_S: Final = 0.02
"""Between heartbeats of two members: each has one in 40 s, and is closed after 120 s without."""
LONG_MS: Final = 10
TIMES: Final = 5


class Row(NamedTuple):
    """One request or piece of work: how long until it was done, and the longest hold meanwhile."""

    name: str
    ms: float
    held_ms: float
    """The median of all times."""
    worst_ms: float


class Crowded:
    """A broker with a lot of everything, a name server beside it, and clients of both."""

    def __init__(self, folder: Path) -> None:
        index = {"maxIndexNum": "100000", "maxHashSlotNum": "20000"}
        files = {"mapedFileSizeCommitLog": str(64 << 20), "mapedFileSizeConsumeQueue": "20000"}
        self.broker = broker_in(folder, **files, **index)
        kept, settings = str(folder / "kv"), str(folder / "namesrv")
        self.name_server = NameServer(
            NamesrvConfig(
                listen_port=0,
                bind_address="127.0.0.1",
                kv_config_path=kept,
                config_store_path=settings,
            )
        )
        self.clients = Clients()
        self.address = self.names = ""

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self.broker.start()}"
        self.names = f"127.0.0.1:{await self.name_server.start()}"
        for step in (self._fill, self._join, self._hold):
            began = time.perf_counter()
            await step()
            print(
                f"{step.__name__}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True
            )

    async def _fill(self) -> None:
        parts, store = self.broker.parts, self.broker.store
        tables = parts.tables
        for number in range(TOPICS):
            tables.topics.update(TopicConfig(f"topic-{number}", QUEUES, QUEUES))
            for queue_id in range(QUEUES):
                queue = store.queue(f"topic-{number}", queue_id)
                if number < WRITTEN and queue_id == 0:
                    for _ in range(3):
                        host = store.config.store_host
                        record = NewRecord(queue, b"x" * 100, b"", 0, 0, 1, host, host)
                        store.writer.append(record, (b"key",))
        for number in range(GROUPS):
            tables.groups.update(GroupConfig(f"group-{number}"))
            for queue_id in range(QUEUES):
                tables.offsets.commit(f"group-{number}", f"topic-{number % WRITTEN}", queue_id, 0)
                tables.offsets.commit("group-0", f"topic-{number}", queue_id, 0)
                tables.offsets.commit("crowd", "topic-0", queue_id, 0)
                parts.measurements.traffic.given(
                    f"topic-{number}", "group-0", queue_id, 1, 100, 0.0
                )
        store.end_turn()

    async def _join(self) -> None:
        """Nobody is told of the others yet: that would be two million messages."""
        members = self.broker.parts.members
        members.notifies = False
        await self.clients.do(join, self.address)
        members.notifies = True
        await self.clients.do(go_on_beating, self.address)

    async def _hold(self) -> None:
        """Pulls that wait at the queues of all topics, and a thousand of them at one."""
        for first in range(0, PULLS, PULLS_OF_ONE):
            await self.clients.do(hold, self.address, first)
        while self.broker.parts.long_polls.count < PULLS:
            await asyncio.sleep(0.01)

    def asked(
        self, code: RequestCode, body: bytes = b"", /, **fields: object
    ) -> Callable[[], Awaitable[object]]:
        """A request to the broker."""

        async def ask() -> object:
            request = Command(code, {name: str(value) for name, value in fields.items()}, body)
            return await self.clients.call(self.address, request)

        return ask

    def registered(self) -> Callable[[], Awaitable[object]]:
        """A registration at the name server, with all topics."""
        body = finished(encode_registration(self.broker.parts.tables.topics.to_table()))
        fields = RegisterBrokerHeader(
            "a", "10.0.0.1:10911", "c", "10.0.0.1:10912", 0, False, 0
        ).write()

        async def ask() -> object:
            return await self.clients.call(
                self.names, Command(RequestCode.REGISTER_BROKER, dict(fields), body)
            )

        return ask

    def name_server_asked(
        self, code: RequestCode, **fields: object
    ) -> Callable[[], Awaitable[object]]:
        async def ask() -> object:
            request = Command(code, {name: str(value) for name, value in fields.items()})
            return await self.clients.call(self.names, request)

        return ask

    async def stop(self) -> None:
        self.clients.stop()
        await self.name_server.stop()
        await self.broker.kill()


def heartbeat(number: int) -> Command:
    data = ConsumerData("crowd", subscriptions=(Subscription("topic-0"),))
    return Command(
        RequestCode.HEART_BEAT, {}, dump_bytes(Heartbeat(f"c{number}", (), (data,)).to_json())
    )


def join(address: str) -> None:
    """Members of the group `crowd`, a connection each; this and what follows is run by the clients'
    process.
    """
    in_process.connections.wait(beat(address, 0))


def go_on_beating(address: str) -> None:
    """Without it all members would be closed as silent, in the middle of what is measured."""

    async def go_on() -> None:
        while True:
            await beat(address, BEAT_S)

    in_process.connections.start(go_on())


async def beat(address: str, pause_s: float) -> None:
    for number in range(MEMBERS):
        await in_process.connections[1 + number].call(address, heartbeat(number), TIMEOUT_MS)
        await asyncio.sleep(pause_s)


def hold(address: str, first: int) -> None:
    """Pulls of one connection, which find nothing."""
    in_process.connections.wait(_hold(address, first))


async def _hold(address: str, first: int) -> None:
    connection = await in_process.connections[1 + first // PULLS_OF_ONE].connection(address)
    frames = []
    for number in range(first, first + PULLS_OF_ONE):
        topic = "topic-0" if number < 1000 else f"topic-{number % WRITTEN}"
        header = PullHeader("group-0", topic, 0, 3, 32, 2 | 4, 0, 3_600_000, "*", 1, "TAG")
        request = Command(RequestCode.PULL_MESSAGE, header.write())
        request.opaque = 1_000_000 + number
        frames.append(request.encode())
    for at in range(0, PULLS_OF_ONE, 100):
        connection.send(b"".join(frames[at : at + 100]))
        await asyncio.sleep(0)


def works(crowded: Crowded) -> dict[str, Callable[[], Awaitable[object]]]:
    """What is measured, by name."""
    parts, ask, code = crowded.broker.parts, crowded.asked, RequestCode
    sliced: dict[str, Callable[[], Steps[None]]] = {
        f"statistics, {window.title}": partial(parts.measurements.sample, window)
        for window in Window
    }
    sliced |= {
        "sweep of held pulls": parts.long_polls.sweep,
        "silent members": parts.members.close_silent,
    }
    sliced |= {"expired locks": parts.tables.drop_expired_leases}

    def at_once(work: Callable[[], object]) -> Callable[[], Awaitable[object]]:
        async def do() -> object:
            return work()

        return do

    async def send_to_many() -> None:
        await ask(
            code.SEND_MESSAGE_V2,
            b"x",
            a="P",
            b="topic-0",
            c="TBW102",
            d=4,
            e=0,
            f=0,
            g=1,
            h=0,
            i="",
            j=0,
            k="false",
        )()
        await asyncio.sleep(0.2)

    newcomers = count(MEMBERS)

    async def newcomer() -> None:
        await ask(code.HEART_BEAT, heartbeat(next(newcomers)).body)()
        await asyncio.sleep(0.2)

    shown = {code.name: ask(code) for code in (
        code.GET_ALL_TOPIC_CONFIG, code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, code.GET_ALL_CONSUMER_OFFSET,
        code.GET_ALL_DELAY_OFFSET, code.GET_BROKER_RUNTIME_INFO, code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        code.CLEAN_EXPIRED_CONSUMEQUEUE, code.CLEAN_UNUSED_TOPIC,
    )}  # fmt: skip
    return {
        **shown,
        "GET_BROKER_CONSUME_STATS": ask(code.GET_BROKER_CONSUME_STATS, isOrder="false"),
        "GET_CONSUME_STATS, 5,000 topics": ask(code.GET_CONSUME_STATS, consumerGroup="group-0"),
        "GET_TOPIC_STATS_INFO": ask(code.GET_TOPIC_STATS_INFO, topic="topic-0"),
        "VIEW_BROKER_STATS_DATA": ask(
            code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="topic-0"
        ),
        "QUERY_TOPIC_CONSUME_BY_WHO": ask(code.QUERY_TOPIC_CONSUME_BY_WHO, topic="topic-0"),
        "GET_CONSUMER_CONNECTION_LIST": ask(
            code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="crowd"
        ),
        "GET_CONSUMER_LIST_BY_GROUP": ask(code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="crowd"),
        "CLONE_GROUP_OFFSET, 5,000 topics": ask(
            code.CLONE_GROUP_OFFSET, srcGroup="group-0", destGroup="clone", topic="", offline="true"
        ),
        "INVOKE_BROKER_TO_RESET_OFFSET, 2,000 members": ask(
            code.INVOKE_BROKER_TO_RESET_OFFSET,
            topic="topic-0",
            group="crowd",
            timestamp=0,
            isForce="true",
        ),
        "QUERY_MESSAGE": ask(
            code.QUERY_MESSAGE,
            topic="topic-0",
            key="key",
            maxNum=64,
            beginTimestamp=0,
            endTimestamp=1 << 60,
        ),
        "SEARCH_OFFSET_BY_TIMESTAMP": ask(
            code.SEARCH_OFFSET_BY_TIMESTAMP, topic="topic-0", queueId=0, timestamp=5
        ),
        "a member joins 2,000 others": newcomer,
        "a message for 1,100 held pulls": send_to_many,
        **{name: in_slices(parts.slices, work) for name, work in sliced.items()},
        "save of consumer offsets": parts.tables._offsets_file.flush,
        "save of topics": parts.tables._topics_file.flush,
        "checkpoint": partial(checkpointed, crowded),
        "a slave reads its master's tables": partial(copied, crowded),
        "registration is made": lambda: parts.slices.run(
            encode_registration(parts.tables.topics.to_table())
        ),
        "rates": at_once(parts.measurements.sample_rates),
        "filters looked at": at_once(parts.tables.save_filters),
        "name server: REGISTER_BROKER, 10,000 topics": crowded.registered(),
        "name server: the same again": crowded.registered(),
        "name server: GET_ALL_TOPIC_LIST": crowded.name_server_asked(
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        ),
        "name server: GET_ROUTEINFO_BY_TOPIC": crowded.name_server_asked(
            code.GET_ROUTEINFO_BY_TOPIC, topic="topic-7"
        ),
        "name server: GET_TOPICS_BY_CLUSTER": crowded.name_server_asked(
            code.GET_TOPICS_BY_CLUSTER, cluster="c"
        ),
        "name server: WIPE_WRITE_PERM_OF_BROKER": crowded.name_server_asked(
            code.WIPE_WRITE_PERM_OF_BROKER, brokerName="a"
        ),
    }


async def checkpointed(crowded: Crowded) -> None:
    parts = crowded.broker.parts
    for work in await parts.slices.run(crowded.broker.store.checkpoint_steps()):
        await crowded.broker.runtime.blocking(work)


async def copied(crowded: Crowded) -> None:
    """As a slave copies its master's tables."""
    slices = crowded.broker.parts.slices
    tables: dict[RequestCode, type[Table]] = {
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicTable,
        RequestCode.GET_ALL_CONSUMER_OFFSET: OffsetTable,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GroupTable,
    }
    for code, kind in tables.items():
        answer = await crowded.clients.call(crowded.address, Command(code))
        await slices.run(decode_table(kind, answer.body))


async def measured(name: str, work: Callable[[], Awaitable[object]]) -> Row:
    """Five times: some find more to do the first time."""
    took, held = [], []
    for _ in range(TIMES):
        probe = Probe()
        task = asyncio.create_task(probe.run())
        await asyncio.sleep(0.02)
        probe.longest_s, began = 0.0, time.perf_counter()
        await work()
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0)
        task.cancel()
        held.append(probe.longest_s * 1000)
    return Row(name, median(took), median(held), max(held))


class Probe:
    """Sees how long the turns of the loop take, by the clock of its thread: other processes do not
    count.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - before)
            before = now


async def run() -> list[Row]:
    rows = []
    async with serving(Crowded) as crowded:
        for name, work in works(crowded).items():
            rows.append(await measured(name, work))
            print(f"{rows[-1].name}: {rows[-1].held_ms:.1f} ms", file=sys.stderr, flush=True)
    return rows


def in_bold(held_ms: float) -> str:
    """Bold is what holds the loop for too long."""
    return f"**{held_ms:,.1f}**" if held_ms > LONG_MS else f"{held_ms:,.1f}"


def page(rows: list[Row]) -> str:
    rows = sorted(rows, key=lambda row: -row.held_ms)
    lines = [
        "# How long one request holds a broker's loop",
        "",
        f"- {datetime.now(UTC).date()}, `python -m bench.loop_delay`",
        f"- {machine.describe()}",
        f"- {TOPICS:,} topics x {QUEUES} queues, messages in {WRITTEN:,}; {GROUPS:,} groups, one of {MEMBERS:,}"
        f" members; {PULLS:,} held pulls",
        f"- {TIMES} times each. done: until the answer is there, by the clock; held: the longest turn of the loop"
        " meanwhile, in which nobody else is served, in CPU time of the loop's thread; medians, and the worst",
        "",
        "| request or periodic work | done, ms | held, ms | worst, ms |",
        "| --- | --- | --- | --- |",
        *(
            f"| {row.name} | {row.ms:,.1f} | {in_bold(row.held_ms)} | {in_bold(row.worst_ms)} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="write the page here, too")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        text = page(runner.run(run()))
    print(text)
    if options.results is not None:
        options.results.write_text(text)


if __name__ == "__main__":
    main()
