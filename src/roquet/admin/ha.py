"""The state of replication in a cluster, and the promotion of slaves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from roquet.admin.cluster import AdminClient
from roquet.errors import CallTimeout, ResponseError, RoquetError
from roquet.protocol.bodies.ha_status import HaStatus, LogRange
from roquet.protocol.bodies.tables import MASTER_ID, BrokerData
from roquet.protocol.headers.admin import PromoteHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode

PROMOTE_TIMEOUT_MS: Final = 20_000
"""The slave asks the other replicas first, and waits for those that may be down."""
LISTED_TIMEOUT_S: Final = 60.0
LISTED_PERIOD_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Replica:
    """A master or slave, and its state.

    `start` and `end` are the physical offsets at which its log starts and ends; None if it did not
    answer. `status` is None if it did not answer, or is a broker of Apache 4.x, which does not have
    this request. `reason` is why it did not answer.
    """

    name: str
    broker_id: int
    address: str
    start: int | None
    end: int | None
    status: HaStatus | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Replicas:
    """The brokers that share a broker name: the master (id 0), if there is one, and slaves."""

    name: str
    members: tuple[Replica, ...]

    @property
    def master(self) -> Replica | None:
        return next((replica for replica in self.members if replica.broker_id == MASTER_ID), None)

    def lag(self, replica: Replica) -> int | None:
        """The lag of a replica in bytes; None if it or the master did not answer."""
        master = self.master
        if master is None or master.end is None or replica.end is None:
            return None
        return max(0, master.end - replica.end)


async def all_replicas(cluster: AdminClient, name: str | None = None) -> list[Replicas]:
    """Ask the replicas of all broker names, or of one, for their state.

    :raises ConnectionClosed, CallTimeout: no name server answers.
    """
    brokers = await cluster.brokers()
    wanted = [data for key, data in sorted(brokers.items()) if name in (None, key)]
    return list(await asyncio.gather(*(_replicas(cluster, data) for data in wanted)))


async def _replicas(cluster: AdminClient, data: BrokerData) -> Replicas:
    replicas = (
        _replica(cluster, data.broker_name, *each) for each in sorted(data.addresses.items())
    )
    return Replicas(data.broker_name, tuple(await asyncio.gather(*replicas)))


async def _replica(cluster: AdminClient, name: str, broker_id: int, address: str) -> Replica:
    try:
        log = await cluster.ask_for(
            address, RequestCode.GET_BROKER_RUNTIME_INFO, LogRange.from_json
        )
        return Replica(
            name, broker_id, address, log.start, log.end, await _status(cluster, address)
        )
    except (RoquetError, ValueError) as error:
        return Replica(name, broker_id, address, None, None, None, str(error))


async def _status(cluster: AdminClient, address: str) -> HaStatus | None:
    try:
        return await cluster.ask_for(address, RequestCode.GET_BROKER_HA_STATUS, HaStatus.from_json)
    except ResponseError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        raise


async def promote(
    cluster: AdminClient, address: str, role: str, *, fenced: bool, forced: bool
) -> None:
    """Promote the slave at `address`, and wait until a name server lists it as master.

    :param address: the slave's address, as the name servers list it.
    :param role: SYNC_MASTER or ASYNC_MASTER.
    :param fenced: the operator's word that the former master cannot run.
    :param forced: promote the slave even if acknowledged messages are lost.
    :raises ResponseError: the slave refuses; the remark has all reasons.
    :raises ConnectionClosed: the slave does not answer.
    :raises CallTimeout: the slave did not answer, or was not listed as master in time.
    """
    fields = PromoteHeader(role, fenced, forced).write()
    await cluster.ask(address, RequestCode.PROMOTE_SLAVE, fields, PROMOTE_TIMEOUT_MS)
    try:
        async with asyncio.timeout(LISTED_TIMEOUT_S):
            while not await _is_master(cluster, address):
                await asyncio.sleep(LISTED_PERIOD_S)
    except TimeoutError:
        text = (
            f"{address} was promoted, but no name server lists it as master after "
            f"{LISTED_TIMEOUT_S:.0f} s: see its log"
        )
        raise CallTimeout(text) from None


async def _is_master(cluster: AdminClient, address: str) -> bool:
    return any(data.master == address for data in (await cluster.brokers()).values())
