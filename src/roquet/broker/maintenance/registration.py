"""Registers this broker and its topics at all name servers.

Each name server has its own loop, so that one that does not answer does not hold up the others. The
connection stays open, because a name server forgets a broker whose connection ends.

See docs/broker/topics.md#registration-is-always-whole and
docs/protocol/name-server.md#registration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

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


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The names and addresses with which a broker registers."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str


@dataclass(frozen=True, slots=True)
class RegistrationConfig:
    """The settings of registrations.

    :param period_ms: the time between two registrations.
    :param timeout_ms: how long a name server may take to answer.
    :param compressed: whether the body is compressed (`compressedRegister`).
    :param permission: the broker's permission. If it is not read and write, all topics are
        registered with it.
    """

    period_ms: int = 30_000
    timeout_ms: int = 6000
    compressed: bool = False
    permission: int = READ_WRITE


class Registrar:
    """Registers one broker periodically and after each change of its topics.

    A failure is logged when it begins and when it ends, not each time.

    Invariant: every change reported by `soon` reaches every name server that answers.

    :param topics: gives the present topics.
    :param master_known: on a slave, called with the master's HA address and its address for
        requests whenever they change.
    :param order_known: called with the names of the ordered topics, if a name server has any.
    :param slices: runs the encoding of large tables.
    """

    def __init__(
        self,
        channels: Channels,
        name_servers: Sequence[str],
        identity: BrokerIdentity,
        topics: Callable[[], TopicTable],
        config: RegistrationConfig,
        *,
        master_known: Callable[[str | None, str | None], None] | None = None,
        order_known: Callable[[frozenset[str]], None] | None = None,
        slices: Slices | None = None,
    ) -> None:
        self._slices = slices or Slices()
        self._channels = channels
        self._identity = identity
        self._topics = topics
        self._config = config
        self._permission = config.permission
        self._restrictions = 0
        self._master_known = master_known
        self._order_known = order_known
        self._wanted = {address: asyncio.Event() for address in name_servers}
        self._unreachable: set[str] = set()
        self._masters: dict[str, RegisterBrokerAnswer] = {}
        self._master = RegisterBrokerAnswer()
        self._encoded: tuple[tuple[DataVersion, int], bytes] | None = None

    async def run(self) -> None:
        """Register now, after `FIRST_AGAIN_MS`, each period and after `soon`, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for address in self._wanted:
                group.create_task(self._keep_telling(address))

    async def register(self) -> None:
        """Register once at all name servers; failures are logged."""
        await asyncio.gather(*map(self._tell, self._wanted))

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
        await asyncio.gather(*map(self._say_goodbye, self._wanted))

    async def _keep_telling(self, address: str) -> None:
        wait_ms = min(FIRST_AGAIN_MS, self._config.period_ms)
        while True:
            self._wanted[address].clear()
            await self._tell(address)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted[address].wait()
            except TimeoutError:
                wait_ms = self._config.period_ms

    async def _tell(self, address: str) -> None:
        try:
            self._take(address, checked(await self._answer(address), address))
        except (RoquetError, ValueError) as error:
            if address not in self._unreachable:
                log.warning(
                    "registration failed, will be retried: name_server=%s error=%s", address, error
                )
            self._unreachable.add(address)
            return
        if address in self._unreachable:
            log.info("registration works again: name_server=%s", address)
            self._unreachable.discard(address)

    async def _answer(self, address: str) -> Command:
        """Send a registration. After a timeout it is sent again, over a new connection."""
        try:
            return await self._call(address)
        except CallTimeout:
            return await self._call(address)

    async def _call(self, address: str) -> Command:
        request = await self._request()
        return await self._channels.call(address, request, self._config.timeout_ms)

    def _take(self, address: str, answer: Command) -> None:
        if self._master_known is not None:
            self._masters.pop(address, None)
            self._masters[address] = RegisterBrokerAnswer.read(answer.fields)
            self._choose_master(self._master_known)
        if self._order_known is not None and answer.body:
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

    async def _say_goodbye(self, address: str) -> None:
        own = self._identity
        header = BrokerHeader(own.name, own.address, own.cluster, own.broker_id)
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
        own = self._identity
        header = RegisterBrokerHeader(
            own.name,
            own.address,
            own.cluster,
            own.ha_address,
            own.broker_id,
            self._config.compressed,
            checksum(body),
        )
        return Command(RequestCode.REGISTER_BROKER, header.write(), body)

    async def _body(self, table: TopicTable) -> bytes:
        """The encoded body, cached for the version of the table."""
        state = table.version, self._restrictions
        if self._encoded is None or self._encoded[0] != state:
            registered = self._registered(table)
            if self._config.compressed:
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
