"""A producer and a member of a consumer group on simulated hosts, and what they remember of every
message.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from functools import lru_cache
from itertools import accumulate, count
from typing import Final

from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.client.producer import Producer
from roquet.client.send_result import SendResult, SendStatus
from roquet.errors import CallTimeout, ConnectionClosed, ResponseError, RoquetError, RouteNotFound
from roquet.protocol.records.message import Message
from tests.simulation.simulation import Host

TOPIC: Final = "orders"
GROUP: Final = "billing"
BODY_SIZES: Final = (1, 1, 50, 300, 1500, 3000)
"""Bodies are up to one of these sizes large, whichever the message's key says."""
LARGE: Final = "large"
"""What keys of larger messages begin with."""
LARGE_BODY_SIZES: Final = (1, 4_000, 4_096, 9_000, 70_000, 400_000)
NO_ANSWER: Final = (CallTimeout, ConnectionClosed, ResponseError, RouteNotFound)
BATCH_CHANCE: Final = 0.1
BATCH_SIZE_MAX: Final = 6
BATCH_BODIES_MAX: Final = 6_000
"""So many bytes of bodies in one batch: with what surrounds them it still fits into the smallest
log file.
"""
PAUSE_S: Final = 0.02
"""The mean time between two sends."""


@lru_cache(maxsize=4096)
def body_of(key: str) -> bytes:
    """What the message with this key holds; nobody has to remember it."""
    chance = random.Random(key)
    return chance.randbytes(
        chance.randint(1, chance.choice(LARGE_BODY_SIZES if key.startswith(LARGE) else BODY_SIZES))
    )


def message_of(key: str) -> Message:
    return Message(TOPIC, body_of(key), f"tag-{len(key)}", key)


def fitting(keys: list[str]) -> list[str]:
    """As many of these, at least one, as may go in one batch: a broker refuses what no log file can
    hold.
    """
    sizes = accumulate(len(body_of(key)) for key in keys)
    return (
        keys[:1]
        + [key for key, size in zip(keys, sizes, strict=True) if size <= BATCH_BODIES_MAX][1:]
    )


def place_of(result: SendResult) -> int:
    """The physical offset that the broker's message id names."""
    return int(result.offset_message_id[16:], 16)


class ProducerNode:
    """A producer in one process.

    Invariant: each key was sent once; when all is quiet it is in exactly one of `acknowledged`
    (SEND_OK) and `unsure` (every other answer, or none: stored or not). `acknowledged_s` says when,
    `acknowledged_by` by which broker name.
    """

    def __init__(self, host: Host, name_server: str) -> None:
        self.host = host
        self.kind = "key"
        """What the keys of its messages begin with; see `LARGE`."""
        self.acknowledged: dict[str, SendResult] = {}
        self.acknowledged_by: defaultdict[str, dict[str, SendResult]] = defaultdict(dict)
        self.acknowledged_s: dict[str, float] = {}
        self.unsure: dict[str, SendResult | RoquetError] = {}
        self.pending: dict[str, None] = {}
        self._name_server = name_server
        self._numbers = count()
        self._producer: Producer | None = None

    def start(self) -> None:
        self.host.call(self._open)

    async def _open(self) -> None:
        client_id = f"{self.host.address}@producer"
        producer = Producer(
            self._name_server, "shop", client_id=client_id, runtime=self.host.runtime()
        )
        self._producer = await producer.__aenter__()

    def send(self, count: int, pause_s: float = PAUSE_S) -> None:
        """Begin to send so many messages, one after the other, without waiting for their
        answers.
        """
        keys = [f"{self.kind}-{next(self._numbers)}" for _ in range(count)]
        self.pending.update(dict.fromkeys(keys))
        self.host.start(lambda: self._send_all(keys, pause_s))

    async def _send_all(self, keys: list[str], pause_s: float) -> None:
        """One by one for the most part, some of them in batches."""
        chance = self.host.random
        async with asyncio.TaskGroup() as group:
            while keys:
                size = 1 if chance.random() > BATCH_CHANCE else chance.randint(2, BATCH_SIZE_MAX)
                together = fitting(keys[:size])
                keys = keys[len(together) :]
                await asyncio.sleep(chance.expovariate(1 / pause_s))
                group.create_task(self._send(together))

    async def _send(self, keys: list[str]) -> None:
        answers: list[SendResult] | RoquetError
        try:
            answers = await self._ask_for_answers([message_of(key) for key in keys])
        except NO_ANSWER as error:
            answers = error
        for place, key in enumerate(keys):
            self._answered(key, answers if isinstance(answers, RoquetError) else answers[place])

    async def _ask_for_answers(self, messages: list[Message]) -> list[SendResult]:
        assert self._producer is not None
        if len(messages) == 1:
            return [await self._producer.send(messages[0])]
        return await self._producer.send_batch(messages)

    def _answered(self, key: str, answer: SendResult | RoquetError) -> None:
        del self.pending[key]
        if isinstance(answer, SendResult) and answer.status is SendStatus.SEND_OK:
            self.acknowledged[key] = self.acknowledged_by[answer.queue.broker_name][key] = answer
            self.acknowledged_s[key] = asyncio.get_running_loop().time()
        else:
            self.unsure[key] = answer


class ConsumerNode:
    """One member of the group, one process after the other.

    Invariant: `received` counts how often each key was handed to the application, in all lives,
    `received_s` says when first; `went_to[broker name, queue id]` is the furthest it came.
    """

    def __init__(self, host: Host, name_server: str) -> None:
        self.host = host
        self.received: Counter[str] = Counter()
        self.received_s: dict[str, float] = {}
        self.went_to: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.consumer: Consumer | None = None
        self._name_server = name_server
        self._lives = 0

    def start(self) -> None:
        self._lives += 1
        self.host.start(self._consume)

    async def _consume(self) -> None:
        """A start without a name server fails, and whoever started it tries again."""
        while True:
            try:
                await self._consume_for_ever()
            except RoquetError:
                await asyncio.sleep(1)

    async def _consume_for_ever(self) -> None:
        client_id = f"{self.host.address}@{self._lives}"
        async with Consumer(
            self._name_server,
            GROUP,
            TOPIC,
            "earliest",
            client_id=client_id,
            runtime=self.host.runtime(),
        ) as self.consumer:
            async for message in self.consumer:
                self._receive(message)

    def _receive(self, message: ReceivedMessage) -> None:
        (key,) = message.keys
        assert message.body == body_of(key), f"{key} came with another body"
        self.received[key] += 1
        self.received_s.setdefault(key, asyncio.get_running_loop().time())
        if message.queue.topic == TOPIC:
            place = message.queue.broker_name, message.queue.queue_id
            self.went_to[place] = max(message.queue_offset + 1, self.went_to[place])
