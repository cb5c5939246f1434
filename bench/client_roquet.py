"""The work of `bench.client` with roquet's client: NAME_SERVER TOPIC WAY UNDER_WAY [uvloop]. The ways
and the words on standard input are those of `bench/client_loads.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from roquet import Consumer, Message, Producer

BEGAN = perf_counter()
"""Behind the imports."""
BODY = b"x" * 1024
LINGER_MS = 5


class Sending:
    """Sends to one topic until it is told to end; counts what was acknowledged."""

    def __init__(self, producer: Producer, topic: str, under_way: int) -> None:
        self._producer = producer
        self._topic = topic
        self._under_way = under_way
        self._first_ms = 0.0
        self._failed = 0

    async def waiting(self, goes_on: Callable[[], bool]) -> int:
        """So many tasks, each of which waits for its answers."""
        tasks = [self._one_by_one(goes_on) for _ in range(self._under_way)]
        return sum(await asyncio.gather(*tasks))

    async def _one_by_one(self, goes_on: Callable[[], bool]) -> int:
        sent = 0
        while goes_on():
            try:
                await self._producer.send(self._topic, BODY)
            except Exception as error:
                self._fail(error)
                continue
            if not self._first_ms:
                self._note_first()
            sent += 1
        return sent

    async def batch(self, goes_on: Callable[[], bool]) -> int:
        """One request with so many messages after the other."""
        sent = 0
        while goes_on():
            messages = [Message(self._topic, BODY) for _ in range(self._under_way)]
            try:
                await self._producer.send_batch(messages)
            except Exception as error:
                self._fail(error)
                continue
            if not self._first_ms:
                self._note_first()
            sent += self._under_way
        return sent

    def say(self, messages: int, began_s: float) -> None:
        print(messages, perf_counter() - began_s, self._failed, self._first_ms, flush=True)
        self._failed = 0

    def _note_first(self) -> None:
        self._first_ms = (perf_counter() - BEGAN) * 1e3

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            print(repr(error), file=sys.stderr)
        self._failed += 1


async def send(names: str, topic: str, way: str, under_way: int) -> None:
    linger_ms = LINGER_MS if way == "linger" else 0
    async with Producer(names, "bench-roquet", linger_ms=linger_ms) as producer:
        sending = Sending(producer, topic, under_way)
        work: Callable[[Callable[[], bool]], Awaitable[int]]
        work = sending.batch if way == "batch" else sending.waiting
        for line in sys.stdin:
            word, argument = line.split()
            began_s = perf_counter()
            if word == "count":
                left = iter(range(int(argument)))
                sent = await work(lambda left=left: next(left, None) is not None)  # type: ignore[misc]
            else:
                until_s = began_s + float(argument)
                sent = await work(lambda until_s=until_s: perf_counter() < until_s)  # type: ignore[misc]
            sending.say(sent, began_s)


async def consume(names: str, topic: str, size: int) -> None:
    """All that is stored, as a group of its own each time."""
    for number, line in enumerate(sys.stdin):
        count = int(line.split()[1])
        began_s = perf_counter()
        group = f"bench-roquet-{os.getpid()}-{number}"
        async with Consumer(names, group, topic, "earliest") as consumer:
            await (_each(consumer, count) if size == 1 else _lists(consumer, count, size))
            print(count, perf_counter() - began_s, 0, 0.0, flush=True)


async def _each(consumer: Consumer, count: int) -> None:
    left = count * len(BODY)
    async for message in consumer:
        left -= len(message.body)
        if left <= 0:
            return


async def _lists(consumer: Consumer, count: int, size: int) -> None:
    left = count * len(BODY)
    while left > 0:
        async with consumer.batch(size) as messages:
            for message in messages:
                left -= len(message.body)


def main() -> None:
    names, topic, way, under_way, *loop = sys.argv[1:]
    work = (
        consume(names, topic, int(under_way))
        if way == "consume"
        else send(names, topic, way, int(under_way))
    )
    if loop:
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)


if __name__ == "__main__":
    main()
