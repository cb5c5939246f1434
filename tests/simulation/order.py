"""Members that consume queues in order, in a simulated cluster, and what must hold of all they do
together.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from itertools import count
from typing import Final

from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.client.producer import Producer
from roquet.client.send_result import SendStatus
from roquet.errors import RoquetError
from roquet.protocol.records.message import Message, MessageQueue
from tests.simulation.clients import NO_ANSWER
from tests.simulation.simulation import Host, Simulation

TOPIC: Final = "accounts"
GROUP: Final = "ledger"
ACCOUNTS: Final = 5
TASKS: Final = 3
TRIES_MAX: Final = 3
WORK_S_MAX: Final = 1.5
LOCKS_UNKNOWN_S: Final = 30.0
"""So long after its start a broker may give a queue to one member while another counts on the lock
it had before.
"""


def failures_of(key: str) -> int:
    """How often the message fails; one more than the group's tries: it becomes a dead letter."""
    return random.Random(f"failures {key}").choice((0, 0, 0, 0, 0, 1, 2, TRIES_MAX + 1))


class Ledger:
    """What all members were handed and what they settled.

    Invariant: `wrong` is empty. That is: no message was handed out while one before it in its queue had
    never been settled; no two members had messages of one queue in work, but for the time after a
    broker's start; a message that comes again to who failed it has been counted.
    """

    def __init__(self, sim: Simulation) -> None:
        self.settled: set[str] = set()
        self.wrong: list[str] = []
        self.broker_since_s = 0.0
        self.overlaps = self.retries = self.dead = 0
        self._sim = sim
        self._settled_at: defaultdict[MessageQueue, set[int]] = defaultdict(set)
        self._settled_up_to: defaultdict[MessageQueue, int] = defaultdict(int)
        self._in_work: defaultdict[MessageQueue, dict[str, int]] = defaultdict(dict)
        self._failed: dict[tuple[str, MessageQueue, int], int] = {}

    def check(self) -> None:
        assert not self.wrong, self.wrong[0]

    def handed_out(self, member: str, message: ReceivedMessage) -> None:
        queue, offset = message.queue, message.queue_offset
        where = f"{member} has got {offset} of {queue}"
        if offset > self._up_to(queue):
            self.wrong.append(f"{where}, {self._up_to(queue)} was never settled")
        if member in self._in_work[queue]:
            self.wrong.append(f"{where} while it works on {self._in_work[queue][member]}")
        others = [other for other in self._in_work[queue] if other != member]
        if others and self._sim.now_s < self.broker_since_s + LOCKS_UNKNOWN_S:
            self.overlaps += 1
        elif others:
            self.wrong.append(f"{where} while {others} works on {self._in_work[queue]}")
        tries = self._failed.get((member, queue, offset), -1) + 1
        if message.reconsume_times not in (0, tries):
            self.wrong.append(f"{where} as try {message.reconsume_times}, {tries} is due")
        self._in_work[queue][member] = offset

    def _up_to(self, queue: MessageQueue) -> int:
        while self._settled_up_to[queue] in self._settled_at[queue]:
            self._settled_up_to[queue] += 1
        return self._settled_up_to[queue]

    def done(self, member: str, message: ReceivedMessage) -> None:
        queue, offset = message.queue, message.queue_offset
        self._in_work[queue].pop(member, None)
        self._settled_at[queue].add(offset)
        self.settled.update(message.keys)

    def failed(self, member: str, message: ReceivedMessage) -> None:
        """After the last try the next message may come as soon as this one is among the dead
        letters.
        """
        queue, offset = message.queue, message.queue_offset
        self._failed[member, queue, offset] = message.reconsume_times
        self.retries += 1
        if message.reconsume_times >= TRIES_MAX:
            self.dead += 1
            self.done(member, message)
        else:
            self._in_work[queue].pop(member, None)

    def put_down(self, member: str, message: ReceivedMessage) -> None:
        """Its handling has ended otherwise: the message is neither settled nor failed."""
        self._in_work[message.queue].pop(member, None)

    def left(self, member: str) -> None:
        for in_work in self._in_work.values():
            in_work.pop(member, None)


class Clerk:
    """One member of the group, one process after the other, with several tasks."""

    def __init__(self, host: Host, name_server: str, ledger: Ledger) -> None:
        self.host = host
        self.is_member = False
        self._name_server = name_server
        self._ledger = ledger
        self._lives = 0
        self._leaving = asyncio.Event()

    @property
    def name(self) -> str:
        return f"{self.host.address}@{self._lives}"

    def start(self) -> None:
        self._lives += 1
        self.is_member = True
        self.host.start(self._work)

    def kill(self) -> None:
        self.is_member = False
        self._ledger.left(self.name)
        self.host.kill()

    def leave(self) -> None:
        """In an orderly way, whatever its tasks are doing."""
        self._ledger.left(self.name)
        self.is_member = False
        self._leaving.set()

    async def _work(self) -> None:
        self._leaving = asyncio.Event()
        name, runtime = self.name, self.host.runtime()
        async with Consumer(
            self._name_server,
            GROUP,
            TOPIC,
            "earliest",
            ordered=True,
            max_reconsume_times=TRIES_MAX,
            client_id=name,
            runtime=runtime,
        ) as consumer:
            tasks = [asyncio.create_task(self._deal(consumer, name)) for _ in range(TASKS)]
            await self._leaving.wait()
        await asyncio.gather(*tasks)

    async def _deal(self, consumer: Consumer, name: str) -> None:
        async for message in consumer:
            if not self._is(name):
                return
            self._ledger.handed_out(name, message)
            await asyncio.sleep(self.host.random.uniform(0, WORK_S_MAX))
            if not self._is(name):
                return
            if message.reconsume_times < failures_of(message.keys[0]):
                self._ledger.failed(name, message)
                message.retry()
            else:
                self._ledger.done(name, message)
                message.ack()

    def _is(self, name: str) -> bool:
        return self.is_member and self.name == name


class Booking:
    """A producer of messages with sharding keys; `acknowledged` are those answered SEND_OK."""

    def __init__(self, host: Host, name_server: str) -> None:
        self.host = host
        self.acknowledged: set[str] = set()
        self.is_sending = False
        self._name_server = name_server
        self._keys = (f"entry-{number}" for number in count())

    def send(self, number: int, pause_s: float) -> None:
        self.is_sending = True
        self.host.start(lambda: self._send_all(number, pause_s))

    async def _send_all(self, number: int, pause_s: float) -> None:
        client_id, chance = f"{self.host.address}@booking", self.host.random
        async with Producer(
            self._name_server, "shop", client_id=client_id, runtime=self.host.runtime()
        ) as producer:
            for key, _ in zip(self._keys, range(number), strict=False):
                await asyncio.sleep(chance.expovariate(1 / pause_s))
                await self._send(producer, key, f"account-{chance.randrange(ACCOUNTS)}")
        self.is_sending = False

    async def _send(self, producer: Producer, key: str, account: str) -> None:
        try:
            result = await producer.send(
                Message(TOPIC, account.encode(), keys=key), sharding_key=account
            )
        except (*NO_ANSWER, RoquetError):
            return
        if result.status is SendStatus.SEND_OK:
            self.acknowledged.add(key)
