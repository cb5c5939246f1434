"""Registers this broker and its topics at all name servers.

Each name server has its own loop, so that one that does not answer does not hold up the others. The
connection stays open, because a name server forgets a broker whose connection ends.

See docs/broker/topics.md#registration-is-always-whole and
docs/protocol/name-server.md#registration.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.common.failure_streak import FailureStreak
from roquet.errors import CallTimeout, RoquetError
from roquet.protocol.bodies import compressed_registration
from roquet.protocol.bodies import tables as bodies
from roquet.protocol.bodies.sliced import encode_registration
from roquet.protocol.bodies.tables import DataVersion, TopicTable
from roquet.protocol.headers.routing import BrokerHeader, RegisterBrokerAnswer, RegisterBrokerHeader
from roquet.protocol.records.layout import checksum
from roquet.protocol.records.message import READ_WRITE
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

FIRST_AGAIN_MS: Final = 10_000
"""The time between the first and the second registration, as in Apache."""
UNREGISTER_TIMEOUT_MS: Final = 3000


class Registrar:
    """Registers one broker periodically and after each change of its topics.

    A failure is logged when it begins and when it ends, not each time.

    Invariant: every change reported by `soon` reaches every name server that answers.

    :param topics: gives the present topics.
    :param order_known: called with the names of the ordered topics, if a name server has any.
    :param slices: runs the encoding of large tables.
    :param master_known: on a slave, called with the master's HA address and its address for
        requests whenever they change; None on a master.
    """

    def __init__(
        self,
        config: BrokerConfig,
        channels: Channels,
        topics: Callable[[], TopicTable],
        order_known: Callable[[frozenset[str]], None],
        slices: Slices,
        master_known: Callable[[str | None, str | None], None] | None,
    ) -> None:
        self._config = config
        self._channels = channels
        self._topics = topics
        self._order_known = order_known
        self._slices = slices
        self._master_known = master_known
        self._permission = config.broker_permission
        self._restrictions = 0
        self._wanted = {address: asyncio.Event() for address in config.name_servers}
        self._streaks: defaultdict[str, FailureStreak] = defaultdict(FailureStreak)
        self._masters: dict[str, RegisterBrokerAnswer] = {}
        self._master = RegisterBrokerAnswer()
        self._encoded: tuple[tuple[DataVersion, int], bytes] | None = None

    async def run(self) -> None:
        """Register now, after `FIRST_AGAIN_MS`, each period and after `soon`, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for address in self._wanted:
                group.create_task(self._keep_registered(address))

    async def register(self) -> None:
        """Register once at all name servers; failures are logged."""
        await asyncio.gather(*map(self._register_at, self._wanted))

    def soon(self) -> None:
        """Register again soon, because something changed."""
        for wanted in self._wanted.values():
            wanted.set()

    def restrict(self, permission: int) -> None:
        """Register all topics with this permission from now on."""
        self._permission = permission
        self._restrictions += 1
        self.soon()

    async def unregister(self) -> None:
        """Unregister from all name servers.

        One that does not answer drops this broker later, when its connection ends or it is silent.
        """
        await asyncio.gather(*map(self._unregister_at, self._wanted))

    async def _keep_registered(self, address: str) -> None:
        wait_ms = min(FIRST_AGAIN_MS, self._config.register_period_ms)
        while True:
            self._wanted[address].clear()
            await self._register_at(address)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted[address].wait()
            except TimeoutError:
                wait_ms = self._config.register_period_ms

    async def _register_at(self, address: str) -> None:
        try:
            self._apply(address, checked(await self._answer(address), address))
        except (RoquetError, ValueError) as error:
            if self._streaks[address].failed():
                log.warning(
                    "registration failed, will be retried: name_server=%s error=%s", address, error
                )
            return
        if self._streaks[address].ended():
            log.info("registration works again: name_server=%s", address)

    async def _answer(self, address: str) -> Command:
        """Send a registration. After a timeout it is sent again, over a new connection."""
        try:
            return await self._call(address)
        except CallTimeout:
            return await self._call(address)

    async def _call(self, address: str) -> Command:
        timeout_ms = self._config.register_broker_timeout_mills
        return await self._channels.call(address, await self._request(), timeout_ms)

    def _apply(self, address: str, answer: Command) -> None:
        if self._master_known is not None:
            self._masters.pop(address, None)
            self._masters[address] = RegisterBrokerAnswer.read(answer.fields)
            self._choose_master(self._master_known)
        if answer.body:
            self._order_known(
                frozenset(bodies.parse(answer.body, lambda json: json.get("table") or {}))
            )

    def _choose_master(self, known: Callable[[str | None, str | None], None]) -> None:
        """Choose the master from the answers of the name servers.

        The present master is kept while any name server still names it. Otherwise the master that
        was named last is chosen, or none.
        """
        if self._master.master_addr is not None and self._master in self._masters.values():
            return
        named = [answer for answer in self._masters.values() if answer.master_addr is not None]
        master = named[-1] if named else RegisterBrokerAnswer()
        if master != self._master:
            self._master = master
            known(master.ha_server_addr, master.master_addr)

    async def _unregister_at(self, address: str) -> None:
        own = self._config
        header = BrokerHeader(own.broker_name, own.address, own.broker_cluster_name, own.broker_id)
        request = Command(RequestCode.UNREGISTER_BROKER, header.write())
        try:
            checked(await self._channels.call(address, request, UNREGISTER_TIMEOUT_MS), address)
        except RoquetError as error:
            log.info("broker not unregistered: name_server=%s error=%s", address, error)

    async def _request(self) -> Command:
        """The request for a registration, always with all topics.

        A name server of 5.x refuses a first registration with a single topic. See
        docs/broker/topics.md#registration-is-always-whole.
        """
        body = await self._body(self._topics())
        own = self._config
        header = RegisterBrokerHeader(
            own.broker_name,
            own.address,
            own.broker_cluster_name,
            own.ha_address,
            own.broker_id,
            own.compressed_register,
            checksum(body),
        )
        return Command(RequestCode.REGISTER_BROKER, header.write(), body)

    async def _body(self, table: TopicTable) -> bytes:
        """The encoded body, cached for the version of the table."""
        state = table.version, self._restrictions
        if self._encoded is None or self._encoded[0] != state:
            registered = self._registered(table)
            if self._config.compressed_register:
                work = compressed_registration.written(bodies.Registration(registered))
            else:
                work = encode_registration(registered)
            self._encoded = state, await self._slices.run(work)
        return self._encoded[1]

    def _registered(self, table: TopicTable) -> TopicTable:
        if self._permission == READ_WRITE:
            return table
        topics = {
            name: replace(topic, perm=self._permission) for name, topic in table.topics.items()
        }
        version = table.version
        # name servers ignore topics whose data version they already have
        for _ in range(self._restrictions):
            version = version.next(version.timestamp)
        return TopicTable(topics, version)
