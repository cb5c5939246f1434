"""Producers of a simulated market: one process after the other on a host, with several of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count
from typing import Final

import roquet
from roquet.client._send.queue_choice import QueueSelector
from roquet.client.producer import Producer
from roquet.client.send_result import SendResult, SendStatus
from roquet.errors import ClientStateError
from roquet.protocol.records.message import Message, MessageQueue
from tests.simulation.books import ACCOUNTS, ORDERS, Books
from tests.simulation.clients import NO_ANSWER
from tests.simulation.order import ACCOUNTS as ACCOUNT_COUNT
from tests.simulation.processes import check_nothing_is_left, ended, started
from tests.simulation.simulation import Host

LATE_S_MAX: Final = 0.6
"""How much later than its timeout a send may end."""
CLOSE_S_MAX: Final = 30.0
BODY_SIZES: Final = (1, 20, 20, 20, 300, 6_000)


class Seller:
    """Invariant: what `books` have as sent was answered SEND_OK to a producer of this host or
    another; `is_sending` as long as its process has something left to send.
    """

    def __init__(self, host: Host, name_server: str, books: Books) -> None:
        self.host = host
        self.is_sending = False
        self._name_server = name_server
        self._books = books
        self._leaving = asyncio.Event()
        self._numbers = count()

    def start(self, messages: int) -> None:
        """A process that sends so many messages of each topic, then closes its producers."""
        self.is_sending = True
        self._leaving = asyncio.Event()
        self.host.start(lambda: self._live(messages))

    def leave(self) -> None:
        """Close the producers, whatever they are sending."""
        self._leaving.set()

    def kill(self) -> None:
        self.is_sending = False
        self.host.kill()

    async def _live(self, messages: int) -> None:
        chance = self.host.random
        client_id = f"{self.host.address}@seller"
        mq = await started(
            self._books,
            lambda: roquet.connect(
                self._name_server, client_id=client_id, runtime=self.host.runtime()
            ),
        )
        producers = [self._producer(mq, chance, number) for number in range(chance.randint(1, 2))]
        for producer in producers:
            await self._books.within(CLOSE_S_MAX, "producer.start", producer.start())
        tasks = [
            asyncio.create_task(self._send_all(producer, messages, chance))
            for producer in producers
        ]
        sending = asyncio.create_task(ended(*tasks))
        leaving = asyncio.create_task(self._leaving.wait())
        await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        if self._leaving.is_set() and chance.random() < 0.5:
            for producer in producers:
                await self._books.within(CLOSE_S_MAX, "producer.close", producer.close())
        else:
            leaving.cancel()
        await self._books.within(CLOSE_S_MAX, "client.close", mq.close())
        await sending
        await asyncio.wait([leaving])
        check_nothing_is_left(self._books.sim, self.host)
        self.is_sending = False

    def _producer(self, mq: roquet.Client, chance: random.Random, number: int) -> Producer:
        linger_ms = chance.choice((0, 0, 5, 50))
        return mq.producer(
            f"shop-{number}",
            timeout_ms=chance.choice((500, 3000, 10_000)),
            retries=chance.choice((None, None, 0, 2)),
            max_in_flight=chance.choice((1, 4, 256)),
            linger_ms=linger_ms,
            batch_size=chance.choice((1, 5, 1000)),
            avoid_slow_brokers=chance.random() < 0.5,
        )

    async def _send_all(self, producer: Producer, messages: int, chance: random.Random) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(messages):
                await asyncio.sleep(chance.expovariate(1 / chance.choice((0.001, 0.1, 1))))
                if self._leaving.is_set():
                    return
                for topic in (ORDERS, ACCOUNTS):
                    group.create_task(self._send(producer, topic, chance))

    def _key(self) -> str:
        return f"{self.host.address}-{next(self._numbers)}"

    async def _send(self, producer: Producer, topic: str, chance: random.Random) -> None:
        """Some of them in batches, some with another timeout, some given up by the application."""
        keys = [self._key() for _ in range(chance.choice((1, 1, 1, 1, 1, 4)))]
        messages = [
            Message(topic, chance.randbytes(chance.choice(BODY_SIZES)), keys=key) for key in keys
        ]
        timeout_ms = chance.choice((200, 1000, 5000))
        sharding_key = f"account-{chance.randrange(ACCOUNT_COUNT)}" if topic == ACCOUNTS else None
        queue = _any_queue(chance) if sharding_key is None and chance.random() < 0.1 else None
        if len(messages) > 1:
            work = producer.send_batch(
                messages, sharding_key=sharding_key, queue=queue, timeout_ms=timeout_ms
            )
        else:
            work = _one(
                producer, messages[0], sharding_key=sharding_key, queue=queue, timeout_ms=timeout_ms
            )
        give_up_s = chance.choice((0.01, 0.5)) if chance.random() < 0.05 else None
        results: list[SendResult] = []
        try:
            async with asyncio.timeout(give_up_s):
                results = await self._books.within(
                    timeout_ms / 1000 + LATE_S_MAX, f"send of {timeout_ms} ms", work
                )
        except NO_ANSWER:
            pass
        except ClientStateError:
            if not self._leaving.is_set():
                raise
        except TimeoutError:
            if give_up_s is None:
                raise
        for key, result in zip(keys, results, strict=bool(results)):
            if result.status is SendStatus.SEND_OK:
                self._books.sent[topic].add(key)


def _any_queue(chance: random.Random) -> QueueSelector:
    number = chance.randrange(1000)

    def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
        return queues[number % len(queues)]

    return choose


async def _one(producer: Producer, message: Message, **options: object) -> list[SendResult]:
    return [await producer.send(message, **options)]  # type: ignore[arg-type]
