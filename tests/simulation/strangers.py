"""A host whose connections do what no client of ours does: they do not read, send half, send
garbage, reset.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from roquet.protocol.headers.pull import SUBSCRIPTION, PullHeader
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.replication.frames import report
from tests.simulation.clients import TOPIC
from tests.simulation.network import LinkQuality, Network
from tests.simulation.nodes import QUEUES
from tests.simulation.simulation import Host

ADDRESS: Final = "10.0.4.1"
PULLS_AT_ONCE: Final = 60
PULLED_MAX: Final = 8
"""Messages in one answer."""
PAUSE_S: Final = 0.3
"""The mean time between two of them."""
DRIP_S: Final = 5.0
MUCH: Final = 120_000
HALVES_AT_ONCE: Final = 6
REPLIERS: Final = 4
REPLIES_AT_ONCE: Final = 5
"""Over one connection: of more than some 60 KB for others that it waits for none is taken."""
REPLY_SIZE: Final = 10_000
WINDOW: Final = 16 * 1024
"""Bytes that the kernels of both sides hold for one that does not read: what is more waits in the
broker.
"""
NO_OFFSET: Final = 1 << 50


class Strangers:
    """Invariant: none of them claims to have a message; a master would believe it, since slaves prove
    nothing.

    :param clients: addresses of ports for clients; :param slaves: of those for slaves.
    """

    def __init__(
        self,
        host: Host,
        network: Network,
        chance: random.Random,
        clients: Sequence[str],
        slaves: Sequence[str],
    ) -> None:
        self.host = host
        self._network = network
        self._chance = chance
        self._clients = clients
        self._slaves = slaves
        self._kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            *(
                self._ask_and_never_read,
                self._send_half,
                self._drip,
                self._send_garbage,
                self._reset,
            ),
            *(self._pretend_to_be_a_slave, self._say_half_to_the_slaves_port),
            *(self._have_the_deaf_replied_to, self._send_halves_of_much, self._knock),
        )
        self.came = 0
        self._is_coming = False
        self._drips: list[asyncio.Task[None]] = []

    def come(self) -> None:
        """From now on, one after the other, until `come_no_more`; those that are there stay."""
        self._is_coming = True
        self.host.start(self._go_on)

    def come_no_more(self) -> None:
        self._is_coming = False

    async def _go_on(self) -> None:
        while self._is_coming:
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))
            try:
                await self._chance.choice(self._kinds)()
                self.came += 1
            except OSError:
                continue  # nobody listens there now

    async def _connect(self, among: Sequence[str]) -> asyncio.Transport:
        host, _, port = self._chance.choice(among).rpartition(":")
        self._network.set_quality(ADDRESS, host, LinkQuality(window=WINDOW))
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, host, int(port)
        )
        return transport

    async def _ask_and_never_read(self) -> None:
        transport = await self._connect(self._clients)
        transport.pause_reading()
        transport.write(b"".join(_pull(opaque) for opaque in range(PULLS_AT_ONCE)))

    async def _send_half(self) -> None:
        frame = _pull(1)
        (await self._connect(self._clients)).write(frame[: self._chance.randrange(1, len(frame))])

    async def _drip(self) -> None:
        transport = await self._connect(self._clients)
        transport.write(struct.pack(">i", 3_000) + bytes(self._chance.randrange(2_000)))

        async def drip() -> None:
            while not transport.is_closing():
                await asyncio.sleep(DRIP_S)
                transport.write(b"x")

        self._drips.append(asyncio.get_running_loop().create_task(drip()))

    async def _send_halves_of_much(self) -> None:
        """Over several connections to one broker."""
        broker = self._chance.choice(self._clients)
        for _ in range(HALVES_AT_ONCE):
            transport = await self._connect([broker])
            transport.write(struct.pack(">i", MUCH) + bytes(MUCH // 2))

    async def _have_the_deaf_replied_to(self) -> None:
        """A client announces itself and does not read; others send it replies."""
        deaf = f"deaf-{self.came}"
        broker = self._chance.choice(self._clients)
        transport = await self._connect([broker])
        transport.pause_reading()
        body = json.dumps(
            {"clientID": deaf, "producerDataSet": [{"groupName": deaf}], "consumerDataSet": []}
        )
        transport.write(Command(RequestCode.HEART_BEAT, {}, body.encode()).encode())
        await asyncio.sleep(1)
        replies = b"".join(_reply(deaf, opaque) for opaque in range(REPLIES_AT_ONCE))
        for _ in range(REPLIERS):
            (await self._connect([broker])).write(replies)

    async def _send_garbage(self) -> None:
        (await self._connect([*self._clients, *self._slaves])).write(self._chance.randbytes(40))

    async def _reset(self) -> None:
        transport = await self._connect([*self._clients, *self._slaves])
        if self._chance.random() < 0.5:
            transport.write(_pull(1)[: self._chance.randrange(1, 60)])
            await asyncio.sleep(self._chance.uniform(0, 0.01))
        transport.abort()

    async def _knock(self) -> None:
        host, _, port = self._chance.choice([*self._clients, *self._slaves]).rpartition(":")
        self._network.knock(host, int(port))

    async def _pretend_to_be_a_slave(self) -> None:
        transport = await self._connect(self._slaves)
        transport.pause_reading()
        transport.write(report(self._chance.choice((0, NO_OFFSET))))

    async def _say_half_to_the_slaves_port(self) -> None:
        transport = await self._connect(self._slaves)
        transport.write(report(0)[: self._chance.randrange(8)])


def _pull(opaque: int) -> bytes:
    header = PullHeader(
        "strangers", TOPIC, opaque % QUEUES, 0, PULLED_MAX, SUBSCRIPTION, 0, 0, subscription="*"
    )
    return Command(RequestCode.PULL_MESSAGE, header.write(), opaque=opaque).encode()


def _reply(client: str, opaque: int) -> bytes:
    fields = {
        "producerGroup": "strangers", "topic": "DefaultCluster_REPLY_TOPIC", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
        "properties": f"CORRELATION_ID\x01{opaque}\x02REPLY_TO_CLIENT\x01{client}\x02", "unitMode": "false",
    }  # fmt: skip
    return Command(
        RequestCode.SEND_REPLY_MESSAGE, fields, bytes(REPLY_SIZE), opaque=opaque
    ).encode()
