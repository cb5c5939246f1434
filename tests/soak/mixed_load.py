"""Clients of all kinds that send, consume, fail, come and go."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import roquet
from roquet.errors import RoquetError
from roquet.protocol.records.message import Message
from tests.interop.apache import Version, start_driver
from tests.soak.ledger import DELAYS_MS, Ledger

TOPICS: Final = ("Plain", "Batch", "Delayed", "Transaction", "Asked")
QUEUES: Final = 4
OURS, THEIRS, JAVA = "ours", "failing", "java"
KINDS: Final = {
    OURS: ("plain", "batch", "delayed", "transaction"),
    THEIRS: ("plain",),
    JAVA: ("plain",),
}
"""Which messages each group is due."""
FAILS_EACH: Final = 50
BATCH: Final = 40
UNDECIDED_EACH: Final = 7
STAYS_S: Final = (5.0, 25.0)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class MixedLoad:
    """Invariant: what a broker acknowledged stands in the ledger before anything is sent again by the
    same task.

    :param chance: of who leaves when.
    """

    def __init__(self, names: str, chance: random.Random) -> None:
        self.names = names
        self.chance = chance
        self.ledger = Ledger()
        self.refused = 0
        self.answered = 0
        self._sending = True
        self._consuming = True

    async def run(self, seconds: float, drained_within_s: float) -> None:
        """Send for so long, and consume until everybody has got everything, or for so long after
        that.
        """
        senders = (self._plain, self._batches, self._delayed, self._transactions, self._requests)
        consumers = [
            self._member(OURS, "Plain", "Batch", "Delayed", "Transaction") for _ in range(3)
        ]
        consumers += [self._member(THEIRS, "Plain", fails_each=FAILS_EACH) for _ in range(2)]
        consuming = [
            asyncio.create_task(each) for each in (*consumers, self._answers(), self._java())
        ]
        sending = [asyncio.create_task(each()) for each in senders]
        await asyncio.sleep(seconds)
        self._sending = False
        with suppress(TimeoutError):
            async with asyncio.timeout(drained_within_s):
                while self.missing():
                    await asyncio.sleep(1)
        self._consuming = False
        await asyncio.gather(*sending, *consuming)

    def missing(self) -> dict[str, list[str]]:
        """By group, where there is anything."""
        found = {group: self.ledger.missing(group, kinds) for group, kinds in KINDS.items()}
        return {group: keys for group, keys in found.items() if keys}

    # sending

    async def _each(self, period_s: float, send: Callable[[int], Awaitable[None]]) -> None:
        """One send after the other, at this pace at most; one that fails is not acknowledged."""
        number = 0
        while self._sending:
            next_s = time.monotonic() + period_s
            try:
                await send(number)
            except RoquetError:
                self.refused += 1
            number += 1
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _plain(self) -> None:
        async with roquet.Producer(self.names, "plain") as producer:

            async def send(number: int) -> None:
                key = f"plain-{number}"
                await producer.send(
                    "Plain", bytes(1 + number % 2_000), keys=key, tags="ab"[number % 2]
                )
                self.ledger.acknowledged(key, 0)

            await self._each(0.005, send)

    async def _batches(self) -> None:
        async with roquet.Producer(self.names, "batches") as producer:

            async def send(number: int) -> None:
                keys = [f"batch-{number}-{index}" for index in range(BATCH)]
                await producer.send_batch([Message("Batch", b"b", keys=key) for key in keys])
                for key in keys:
                    self.ledger.acknowledged(key, 0)

            await self._each(0.5, send)

    async def _delayed(self) -> None:
        async with roquet.Producer(self.names, "delayed") as producer:

            async def send(number: int) -> None:
                key, level = f"delayed-{number}", 1 + number % len(DELAYS_MS)
                begun_ms = now_ms()
                await producer.send("Delayed", b"d", keys=key, delay_level=level)
                self.ledger.acknowledged(key, begun_ms + DELAYS_MS[level])

            await self._each(0.05, send)

    async def _transactions(self) -> None:
        """Odd ones are rolled back; each seventh is undecided until the broker asks, which it must
        be able to.
        """

        def state(key: str) -> roquet.TransactionState:
            is_odd = int(key.rpartition("-")[2]) % 2
            return roquet.TransactionState.ROLLBACK if is_odd else roquet.TransactionState.COMMIT

        async def check(message: roquet.ReceivedMessage) -> roquet.TransactionState:
            return state(message.keys[0])

        async with roquet.TransactionProducer(self.names, "transactions", check) as producer:

            async def send(number: int) -> None:
                key = f"transaction-{number}"

                async def local(message: Message, transaction_id: str) -> roquet.TransactionState:
                    self.ledger.acknowledged(key, 0, is_wanted=not number % 2)
                    return (
                        state(key) if number % UNDECIDED_EACH else roquet.TransactionState.UNKNOWN
                    )

                await producer.send_in_transaction(Message("Transaction", b"t", keys=key), local)

            await self._each(0.1, send)
            while self._consuming:
                await asyncio.sleep(1)

    async def _requests(self) -> None:
        async with roquet.Producer(self.names, "requests") as producer:

            async def send(number: int) -> None:
                answer = await producer.request(Message("Asked", b"%d" % number), timeout_ms=20_000)
                assert answer.body == b"re: %d" % number
                self.answered += 1

            await self._each(1.0, send)

    # consuming

    async def _member(self, group: str, *topics: str, fails_each: int = 0) -> None:
        """A place in the group, taken by one client after the other."""
        while self._consuming:
            async with roquet.Consumer(self.names, group, topics, start="earliest") as consumer:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.chance.uniform(*STAYS_S)):
                        async for message in consumer:
                            await self._take(group, message, fails_each)
                            if not self._consuming:
                                break

    async def _take(self, group: str, message: roquet.ReceivedMessage, fails_each: int) -> None:
        (key,) = message.keys
        if fails_each and not message.reconsume_times and hash(key) % fails_each == 0:
            message.retry()
        else:
            self.ledger.got(group, key, now_ms())
            message.ack()

    async def _answers(self) -> None:
        async with (
            roquet.Producer(self.names, "answers") as producer,
            roquet.Consumer(self.names, "answers", "Asked", start="latest") as consumer,
        ):
            while self._consuming:
                with suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        async for message in consumer:
                            await producer.reply(message, b"re: " + message.body)

    async def _java(self) -> None:
        """A consumer of Apache's, killed again and again."""
        while self._consuming:
            words = ("consume", self.names, "Plain", JAVA, 1 << 30, 3600)
            with start_driver(Version.V4, *words) as client:
                until_s = time.monotonic() + 2 * self.chance.uniform(*STAYS_S) + 5
                while self._consuming and time.monotonic() < until_s:
                    await asyncio.sleep(0.5)
                client.kill()
                for line in client.output().splitlines():
                    with suppress(ValueError):
                        self._java_took(json.loads(line))

    def _java_took(self, line: dict[str, object]) -> None:
        if line.get("keys"):
            self.ledger.got(JAVA, str(line["keys"]), now_ms())
