"""Tells all name servers what this broker is and which topics it has.

Each name server is told on its own: one that does not answer holds up none of the others. The connection stays open,
because a name server forgets a broker whose connection ends.

See docs/broker/topics.md#registration-is-always-whole and docs/protocol/name-server.md#registration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from roquet.errors import CallTimeout, RoquetError
from roquet.protocol.bodies import compressed_registration
from roquet.protocol.bodies import sliced as sliced_bodies
from roquet.protocol.bodies import tables as bodies
from roquet.protocol.bodies.tables import DataVersion, TopicTable
from roquet.protocol.headers.routing import BrokerHeader, RegisterBrokerAnswer, RegisterBrokerHeader
from roquet.protocol.records.message import READ_WRITE
from roquet.protocol.records.record import checksum
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import checked
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

FIRST_AGAIN_MS: Final = 10_000
"""The second registration comes sooner than the period says."""
UNREGISTER_TIMEOUT_MS: Final = 3000


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker says of itself."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str


class Registrar:
    """Keeps the name servers' knowledge of one broker fresh.

    Keeps: every change reported by `soon` reaches every name server that answers; a failure is logged when it begins
           and when it ends, not each time.

    :param topics: gives the present topics.
    :param permission: the broker's own; where it is not read and write, all topics are registered with it.
    :param master_known: (slaves) told the master's addresses whenever they change: replication, requests.
    :param order_known: told the names of the ordered topics, where a name server has any.
    """

    def __init__(
        self,
        channels: Channels,
        name_servers: Sequence[str],
        identity: BrokerIdentity,
        topics: Callable[[], TopicTable],
        *,
        period_ms: int = 30_000,
        timeout_ms: int = 6000,
        compressed: bool = False,
        permission: int = READ_WRITE,
        master_known: Callable[[str | None, str | None], None] | None = None,
        order_known: Callable[[frozenset[str]], None] | None = None,
        slices: Slices | None = None,
    ) -> None:
        self._slices = slices or Slices()
        self._channels = channels
        self._identity = identity
        self._topics = topics
        self._period_ms = period_ms
        self._timeout_ms = timeout_ms
        self._compressed = compressed
        self._permission = permission
        self._restrictions = 0
        self._master_known = master_known
        self._order_known = order_known
        self._wanted = {address: asyncio.Event() for address in name_servers}
        self._unreachable: set[str] = set()
        self._masters: dict[str, RegisterBrokerAnswer] = {}
        self._master = RegisterBrokerAnswer()
        self._encoded: tuple[tuple[DataVersion, int], bytes] | None = None

    async def run(self) -> None:
        """Register now, once more a little later, then each period and whenever `soon` is called; for ever."""
        async with asyncio.TaskGroup() as group:
            for address in self._wanted:
                group.create_task(self._keep_telling(address))

    async def register(self) -> None:
        """Tell all name servers once; those that do not answer are logged."""
        await asyncio.gather(*map(self._tell, self._wanted))

    def soon(self) -> None:
        """Something changed: tell all name servers at once."""
        for wanted in self._wanted.values():
            wanted.set()

    def restrict(self, permission: int) -> None:
        """Register all topics with this permission from now on."""
        self._permission = permission
        self._restrictions += 1
        self.soon()

    async def unregister(self) -> None:
        """Say goodbye to all name servers; one that does not answer notices by itself later."""
        await asyncio.gather(*map(self._say_goodbye, self._wanted))

    async def _keep_telling(self, address: str) -> None:
        wait_ms = min(FIRST_AGAIN_MS, self._period_ms)
        while True:
            self._wanted[address].clear()
            await self._tell(address)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted[address].wait()
            except TimeoutError:
                wait_ms = self._period_ms

    async def _tell(self, address: str) -> None:
        try:
            self._take(address, checked(await self._answer(address), address))
        except (RoquetError, ValueError) as error:
            if address not in self._unreachable:
                log.warning(
                    "name server %s does not take the registration, it is tried again: %s",
                    address,
                    error,
                )
            self._unreachable.add(address)
            return
        if address in self._unreachable:
            log.info("name server %s takes registrations again", address)
            self._unreachable.discard(address)

    async def _answer(self, address: str) -> Command:
        """The answer to a registration; over a new connection where the present one brings none."""
        try:
            return await self._channels.call(address, await self._request(), self._timeout_ms)
        except CallTimeout:
            return await self._channels.call(address, await self._request(), self._timeout_ms)

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
        """Stay with a master that any name server still names; else take the one that was named last, or none."""
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
            log.info("name server %s did not hear that this broker stops: %s", address, error)

    async def _request(self) -> Command:
        """A registration is always whole: 5.x refuses a first one with a single topic.

        See docs/broker/topics.md#registration-is-always-whole.
        """
        body = await self._body(self._topics())
        own = self._identity
        header = RegisterBrokerHeader(
            own.name,
            own.address,
            own.cluster,
            own.ha_address,
            own.broker_id,
            self._compressed,
            checksum(body),
        )
        return Command(RequestCode.REGISTER_BROKER, header.write(), body)

    async def _body(self, table: TopicTable) -> bytes:
        """Made once for each version of the table, however many name servers and periods there are."""
        state = table.version, self._restrictions
        if self._encoded is None or self._encoded[0] != state:
            registered = self._registered(table)
            if self._compressed:
                work = compressed_registration.written(bodies.Registration(registered))
            else:
                work = sliced_bodies.registration(registered)
            self._encoded = state, await self._slices.run(work)
        return self._encoded[1]

    def _registered(self, table: TopicTable) -> TopicTable:
        if self._permission == READ_WRITE:
            return table
        topics = {
            name: replace(topic, perm=self._permission) for name, topic in table.topics.items()
        }
        version = table.version
        for _ in range(
            self._restrictions
        ):  # name servers look at topics whose version they know no more
            version = version.next(version.timestamp)
        return TopicTable(topics, version)
