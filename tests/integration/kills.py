"""Our broker under load, killed with SIGKILL again and again: what it acknowledged, and whether
that is still there.

A process that is killed loses what only it knew; what it wrote stays, as the machine goes on. Power
failures are `tests/properties/test_crashes.py`'s.
"""

from __future__ import annotations

import asyncio
import random
import string
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from roquet.client.producer import Producer, SendResult, SendStatus
from roquet.client.pull_consumer import PullConsumer
from roquet.client.received import ReceivedMessage
from roquet.errors import RoquetError
from roquet.protocol.records.message import Message
from tests.interop.roquet_cluster import RoquetBroker
from tests.interop.stored import log_queues
from tests.interop.wire import has_topic

TOPIC: Final = "Killed"
PRODUCERS: Final = 3
TASKS_EACH: Final = 4
BATCH_MAX: Final = 20
ACKNOWLEDGED_PER_LIFE_MIN: Final = 30
WITHIN_S: Final = 60.0
SETTINGS: Final[dict[str, str | int]] = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 5000,
    "flushConsumeQueueThoroughInterval": 700,
}
"""Files of every kind become full, and checkpoints are written, many times between the first kill
and the last.
"""


@dataclass(frozen=True)
class Found:
    """A message as some reader got it."""

    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str
    body: str


def found_by_us(message: ReceivedMessage) -> Found:
    return Found(
        message.queue.queue_id,
        message.queue_offset,
        message.message_id,
        message.offset_message_id,
        message.body.decode(),
    )


def found_by_apache(line: dict[str, Any]) -> Found:
    """A line of the Java driver."""
    return Found(
        line["queueId"], line["queueOffset"], line["msgId"], line["offsetMsgId"], line["body"]
    )


class Load:
    """Producers that send as fast as they are answered, and what they were told.

    Invariant: each message is sent once, whatever comes of it, so none may be found twice.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._chance = random.Random(seed)
        self._serving = asyncio.Event()
        self._next = 0
        self.acknowledged: dict[int, SendResult] = {}
        """By the message's number."""

    async def run(self, producer: Producer) -> None:
        """Send until cancelled; a send without an answer is over, and the next one waits until the
        broker is back.
        """
        while True:
            await self._serving.wait()
            numbers = self._numbers()
            with suppress(RoquetError):
                for number, result in zip(
                    numbers, await self._send(producer, numbers), strict=True
                ):
                    if result.status is SendStatus.SEND_OK:
                        self.acknowledged[number] = result

    def _numbers(self) -> range:
        count = self._chance.choice((1, 1, 1, self._chance.randint(2, BATCH_MAX)))
        self._next += count
        return range(self._next - count, self._next)

    async def _send(self, producer: Producer, numbers: range) -> list[SendResult]:
        messages = [self._message(number) for number in numbers]
        if len(messages) > 1:
            return await producer.send_batch(messages)
        return [await producer.send(messages[0])]

    def _message(self, number: int) -> Message:
        tags, keys = (f"t{number % 3}", (f"k{number}", "all")) if number % 4 else (None, ())
        return Message(TOPIC, self.body(number).encode(), tags=tags, keys=keys)

    def body(self, number: int) -> str:
        """The message's number, and some text that is compressed when it is long."""
        chance = random.Random(f"{self._seed} {number}")
        size = chance.choice((10, 100, 100, 1000, 1000, chance.randrange(20_000)))
        return f"{number} " + "".join(chance.choices(string.ascii_letters, k=size))

    def resume(self) -> None:
        """The broker serves."""
        self._serving.set()

    def pause(self) -> None:
        """The broker is going to be killed: who gets no answer waits."""
        self._serving.clear()

    def assert_kept(self, found: Iterable[Found]) -> None:
        """What is acknowledged is where the answer said, nothing is there twice, and nothing that
        was never sent.
        """
        by_number: dict[int, Found] = {}
        ends: dict[int, int] = {}
        for each in sorted(found, key=lambda each: (each.queue_id, each.queue_offset)):
            assert each.queue_offset == ends.get(each.queue_id, 0), (
                f"{each} is not the next of its queue"
            )
            ends[each.queue_id] = each.queue_offset + 1
            number = int(each.body.partition(" ")[0])
            assert number not in by_number, f"{each} and {by_number[number]}"
            assert number < self._next
            assert each.body == self.body(number)
            by_number[number] = each
        for number, result in self.acknowledged.items():
            each = by_number[number]
            assert (each.queue_id, each.queue_offset) == (
                result.queue.queue_id,
                result.queue_offset,
            )
            assert (each.message_id, each.offset_message_id) == (
                result.message_id,
                result.offset_message_id,
            )


async def live_and_die(broker: RoquetBroker, load: Load, chance: random.Random) -> None:
    """One life of the broker: sends go on, and it is killed at any moment; now and then while it
    starts already.
    """
    if chance.random() < 0.2:
        start = asyncio.create_task(asyncio.to_thread(broker.start))
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        broker.kill()
        with suppress(RuntimeError):  # Unless it was fast.
            await start
    await asyncio.to_thread(broker.start)
    enough = len(load.acknowledged) + ACKNOWLEDGED_PER_LIFE_MIN
    load.resume()
    async with asyncio.timeout(WITHIN_S):
        while len(load.acknowledged) < enough:
            await asyncio.sleep(0.01)
    await asyncio.sleep(chance.uniform(0, 0.8))
    load.pause()
    broker.kill()


@asynccontextmanager
async def under_load(name_server: str, load: Load) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(
                Producer(name_server, "P", retries=0, timeout_ms=20_000)
            )
            for _ in range(PRODUCERS)
        ]
        tasks = [
            asyncio.create_task(load.run(producer))
            for producer in producers
            for _ in range(TASKS_EACH)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            failures = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
            assert not failures, failures


async def kill_again_and_again(broker: RoquetBroker, seed: int, kills: int) -> Load:
    """So many lives of the broker; what its producers know at the end, with the broker dead."""
    load, chance = Load(seed), random.Random(seed + 1)
    async with under_load(broker.namesrv, load):
        for _ in range(kills):
            await live_and_die(broker, load, chance)
    return load


def assert_store_is_whole(store_dir: Path) -> None:
    """By `roquet store check`."""
    command = [sys.executable, "-m", "roquet.cli.main", "store", "check", str(store_dir)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def assert_files_are_whole(load: Load, store_dir: Path) -> None:
    """What the files say by themselves, with no broker on them."""
    assert_store_is_whole(store_dir)
    stored = [
        each
        for has in log_queues(store_dir).values()
        for each in has.values()
        if each.topic == TOPIC
    ]
    load.assert_kept(
        Found(
            each.queue_id,
            each.queue_offset,
            each.properties["UNIQ_KEY"],
            each.offset_message_id,
            each.text,
        )
        for each in stored
    )


async def read_by_us(name_server: str) -> list[Found]:
    """Every message of the topic."""
    async with PullConsumer(name_server, timeout_ms=20_000) as reader:
        found: list[Found] = []
        for queue in await reader.queues(TOPIC):
            at, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while at < end:
                pulled = await reader.pull(queue, at)
                found += [found_by_us(message) for message in pulled.messages]
                at = pulled.next_offset
        return found


def is_routed(broker: RoquetBroker) -> bool:
    return has_topic(broker.namesrv, TOPIC)
