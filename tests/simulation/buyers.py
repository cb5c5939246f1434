"""Consumers of a simulated market: members of several groups in one process, one process after
the other on a host.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import roquet
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client.consumer import Consumer
from roquet.client.received import DEAD_LETTER_LEVEL, ReceivedMessage
from roquet.errors import CallTimeout, ClientStateError, RoquetError
from roquet.protocol.records.message import MessageQueue
from tests.simulation.books import (
    BILLING,
    FAILS,
    HANGS,
    IS_CANCELLED,
    IS_POISON,
    IS_SLOW,
    LEDGER,
    SCREENS,
    TOPIC_OF,
    Books,
    HandlerCancelled,
    HandlerFailed,
)
from tests.simulation.order import TRIES_MAX, failures_of
from tests.simulation.processes import check_nothing_is_left, ended, started
from tests.simulation.simulation import Host

WORK_S_MAX: Final = 0.5
SLOW_S: Final = 5.0
HANG_S: Final = 90.0
CONSUME_TIMEOUT_MS: Final = 30_000
DRAIN_TIMEOUT_MS: Final = 5_000
CLOSE_S_MAX: Final = 60.0
SUBSCRIBE_S_MAX: Final = 120.0
ASK_S_MAX: Final = 60.0
"""How long a question about offsets may take, and a seek."""
Handle: TypeAlias = Callable[[ReceivedMessage], Awaitable[None]]
STYLES: Final = ("for", "with", "batch", "run", "get")


class Buyer:
    """A process with members of some groups. Those of one life may share a session."""

    def __init__(self, host: Host, name_server: str, books: Books, folder: Path) -> None:
        self.host = host
        self.groups: tuple[str, ...] = ()
        """Of which it is a member now; none when it does not run."""
        self._name_server = name_server
        self._books = books
        self._folder = folder
        self._lives = 0
        self._leaving = asyncio.Event()
        self._has_left = False

    @property
    def name(self) -> str:
        """Of this life."""
        return f"{self.host.address}@{self._lives}"

    def start(self, *groups: str) -> None:
        if self.host.is_running:
            self.host.kill()
        self._lives += 1
        self.groups = groups
        self._leaving = asyncio.Event()
        self._has_left = False
        self.host.start(self._live)

    @property
    def is_leaving(self) -> bool:
        return bool(self.groups) and self._leaving.is_set()

    def kill(self) -> None:
        self.groups = ()
        self._books.ledger.left(self.name)
        self.host.kill()

    def leave(self) -> None:
        """In order, whatever its handlers do."""
        self._leaving.set()

    async def _live(self) -> None:
        chance, groups = self.host.random, self.groups
        is_shared = chance.random() < 0.5
        client_id = f"{self.host.address}@buyer"
        mq = await started(
            self._books,
            lambda: roquet.connect(
                self._name_server, client_id=client_id, runtime=self.host.runtime()
            ),
        )
        consumers = {}
        for group in groups:
            make = partial(self._consumer, group, mq if is_shared else self._name_server, chance)
            consumers[group] = await started(self._books, make)
        styles = {group: chance.choice(STYLES) for group in groups}
        working = {
            group: asyncio.create_task(self._consume(consumers[group], group, styles[group]))
            for group in groups
        }
        asking = asyncio.create_task(self._ask(consumers))
        leaving = asyncio.create_task(self._leaving.wait())
        await asyncio.wait(
            [leaving, asking, *working.values()], return_when=asyncio.FIRST_COMPLETED
        )
        for task in (asking, *working.values()):
            assert not task.done(), task.result()
        asking.cancel()
        if styles.get(LEDGER) not in (None, "run"):
            # Its handlers do not know that another member may have the queues now.
            self._has_left = True
            self._books.ledger.left(self.name)
            working[LEDGER].cancel()
        await self._close(mq, consumers, working)
        await self._books.within(5 * HANG_S, "the end of handlers", ended(*working.values()))
        await asyncio.wait([asking])
        check_nothing_is_left(self._books.sim, self.host)
        self._books.ledger.left(self.name)
        self.groups = ()

    async def _close(
        self,
        mq: roquet.Client,
        consumers: Mapping[str, Consumer],
        working: Mapping[str, asyncio.Task[None]],
    ) -> None:
        """In one of several ways."""
        way = self.host.random.choice(("close", "stop", "cancel", "client first"))
        if way == "cancel":
            for task in working.values():
                task.cancel()
        elif way == "stop":
            for consumer in consumers.values():
                consumer.stop()
        if way != "client first":
            for group, consumer in consumers.items():
                await self._books.within(CLOSE_S_MAX, f"close {group}", consumer.close())
        await self._books.within(2 * CLOSE_S_MAX, "close the client", mq.close())
        for consumer in consumers.values():
            await self._books.within(CLOSE_S_MAX, "close again", consumer.close())

    def _consumer(
        self, group: str, session: roquet.Client | str, chance: random.Random
    ) -> Consumer:
        limits = PrefetchLimits(
            count_max=chance.choice((1, 20, 1000)),
            size_max=chance.choice((1_000, 100_000_000)),
            span_max=chance.choice((50, 2000)),
            total_count_max=chance.choice((None, None, 10)),
        )
        own = {}
        if isinstance(session, str):
            own = {"client_id": f"{self.host.address}@{group}", "runtime": self.host.runtime()}
        return Consumer(
            session,
            group,
            TOPIC_OF[group],
            "earliest",
            ordered=group == LEDGER,
            broadcast=group == SCREENS,
            offsets_folder=self._folder if group == SCREENS else None,
            max_reconsume_times=TRIES_MAX if group == LEDGER else None,
            batch_size=chance.choice((1, 8, 32)),
            limits=limits,
            consume_timeout_ms=CONSUME_TIMEOUT_MS,
            **own,  # type: ignore[arg-type]
        )

    # what applications do with a consumer

    async def _consume(self, consumer: Consumer, group: str, style: str) -> None:
        chance = self.host.random
        handle = partial(self._handle, self.name, group, style == "run")
        if style == "run":
            concurrency = chance.choice((1, 3))
            await consumer.run(handle, concurrency=concurrency, drain_timeout_ms=DRAIN_TIMEOUT_MS)
            return
        # A batch fails as a whole, also messages of it that were not begun.
        in_batches = partial(_in_batches, size=5 if group == BILLING else 1)
        works: dict[str, Callable[[Consumer, Handle], Coroutine[Any, Any, None]]] = {
            "for": _in_for,
            "with": _in_with,
            "batch": in_batches,
            "get": _get,
        }
        async with asyncio.TaskGroup() as tasks:
            for _ in range(chance.choice((1, 3))):
                tasks.create_task(works[style](consumer, handle))

    async def _handle(self, member: str, group: str, runs: bool, message: ReceivedMessage) -> None:
        (key,) = message.keys
        if group != LEDGER:
            await self._settle(group, message, key, runs)
        elif self._has_left:
            await asyncio.Event().wait()  # until this task is cancelled
        else:
            await self._settle_in_order(member, message, key)

    async def _settle_in_order(self, member: str, message: ReceivedMessage, key: str) -> None:
        ledger = self._books.ledger
        ledger.handed_out(member, message)
        try:
            await asyncio.sleep(self.host.random.uniform(0, WORK_S_MAX))
        except asyncio.CancelledError:
            ledger.put_down(member, message)
            raise
        if message.reconsume_times < failures_of(key):
            ledger.failed(member, message)
            raise HandlerFailed(key)
        ledger.done(member, message)

    async def _settle(self, group: str, message: ReceivedMessage, key: str, runs: bool) -> None:
        books = self._books
        await asyncio.sleep(self.host.random.uniform(0, WORK_S_MAX))
        outcome = books.outcome(group, message)
        if group == SCREENS:
            await asyncio.sleep(SLOW_S if outcome == IS_SLOW else 0)
            books.seen[self.host.address].add(key)  # a member that fails does not get it again
            if outcome == FAILS:
                raise HandlerFailed(key)
            return
        if outcome in (HANGS, IS_SLOW):
            await asyncio.sleep(SLOW_S if outcome == IS_SLOW else HANG_S)
        elif outcome == IS_CANCELLED and runs:
            raise HandlerCancelled
        elif outcome in (FAILS, IS_CANCELLED):
            raise HandlerFailed(key)
        elif outcome == IS_POISON:
            message.retry(DEAD_LETTER_LEVEL)
            books.dead[group].add(key)
            return
        books.well[group].add(key)

    async def _seek(self, consumer: Consumer, queue: MessageQueue) -> None:
        """Back to messages that were handled: none may be left out."""
        where: int | Literal["earliest"] = "earliest"
        committed = await self._books.within(ASK_S_MAX, "committed", consumer.committed(queue))
        if committed is not None and self.host.random.random() < 0.7:
            where = min(consumer.position(queue), committed) - self.host.random.randrange(3)
            where = max(0, where)
        await self._books.within(ASK_S_MAX, "seek", consumer.seek(queue, where))

    async def _subscribe_again(self, consumer: Consumer, topic: str) -> None:
        """After a while without the topic, or at once."""
        if self.host.random.random() < 0.5:
            gone = consumer.unsubscribe(topic)
            await self._books.within(SUBSCRIBE_S_MAX, "unsubscribe", gone)
            await asyncio.sleep(self.host.random.uniform(0, 5))
        while True:
            try:
                again = consumer.subscribe(topic)
                await self._books.within(SUBSCRIBE_S_MAX, "subscribe", again)
            except ClientStateError:
                raise
            except RoquetError:
                await asyncio.sleep(1)
            else:
                return

    async def _ask(self, consumers: Mapping[str, Consumer]) -> None:
        """What else applications ask of consumers: offsets, pauses, another place."""
        chance = self.host.random
        while True:
            await asyncio.sleep(chance.expovariate(1 / 10))
            group = chance.choice(list(consumers))
            consumer = consumers[group]
            queues = sorted(consumer.assigned())
            if not queues:
                continue
            queue = chance.choice(queues)
            with suppress(RoquetError):
                match chance.choice(("pause", "seek", "lag", "committed", "commit", "subscribe")):
                    case "pause":
                        consumer.pause(queue)
                        await asyncio.sleep(chance.uniform(0, 10))
                        consumer.resume()
                    case "seek" if not queue.topic.startswith("%"):
                        await self._seek(consumer, queue)
                    case "subscribe":
                        await self._subscribe_again(consumer, TOPIC_OF[group])
                    case "commit":
                        await self._books.within(ASK_S_MAX, "commit", consumer.commit())
                    case "lag":
                        await self._books.within(ASK_S_MAX, "lag", consumer.lag())
                    case _:
                        await self._books.within(ASK_S_MAX, "committed", consumer.committed(queue))


async def _in_for(consumer: Consumer, handle: Handle) -> None:
    async for message in consumer:
        try:
            await handle(message)
        except HandlerFailed:
            message.retry()


async def _in_with(consumer: Consumer, handle: Handle) -> None:
    async for message in consumer:
        async with message:
            await handle(message)


async def _in_batches(consumer: Consumer, handle: Handle, size: int) -> None:
    with suppress(ClientStateError):
        while True:
            async with consumer.batch(size, 1000) as messages:
                for message in messages:
                    await handle(message)
                    message.ack()


async def _get(consumer: Consumer, handle: Handle) -> None:
    with suppress(ClientStateError):
        while True:
            with suppress(CallTimeout):
                message = await consumer.get(timeout_ms=1000)
                try:
                    await handle(message)
                    message.ack()
                except HandlerFailed:
                    message.retry()
