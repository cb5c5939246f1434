"""Heartbeats: they register the groups of this client at the brokers every 30 s."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Final, TypeVar

from roquet.client._net.broker_requests import CheckBackHandler, MemberCallbacks
from roquet.client._net.name_servers import Call
from roquet.client._net.route_table import RouteTable
from roquet.client._net.tasks import Tasks, attempt, pause
from roquet.errors import AccessDenied, MessageError
from roquet.protocol.bodies.tables import Heartbeat
from roquet.protocol.headers.members import UnregisterClientHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

PERIOD_S: Final = 30.0
TIMEOUT_MS: Final = 3000

T = TypeVar("T")


class Heartbeats:
    """Sends heartbeats with all groups of this client, and unregisters them at the end.

    Heartbeats go to every broker process of every known route, but only to masters as long as the
    client has no consumers (docs/protocol/consuming.md#heartbeats).

    Invariant: no heartbeat is under way when a group is unregistered. Brokers handle the two
    requests in different threads; a heartbeat that is handled last would register a member that has
    left, and its queues would not be consumed.
    """

    def __init__(self, client_id: str, call: Call, routes: RouteTable) -> None:
        self._client_id = client_id
        self._call = call
        self._routes = routes
        self.producers: dict[str, CheckBackHandler | None] = {}
        self.consumers: dict[str, MemberCallbacks] = {}
        self._sending = asyncio.Lock()
        self._heartbeats = Tasks()
        self.due = routes.changed
        """Set to send heartbeats now."""

    def join_as_producer(self, group: str, on_check_back: CheckBackHandler | None = None) -> None:
        """Add a producer group.

        :param on_check_back: handles check-backs of the group.
        """
        self.producers[group] = on_check_back
        self.due.set()

    def join_as_consumer(self, group: str, member: MemberCallbacks) -> None:
        """Add a consumer group.

        :raises MessageError: this client is in the group already.
        """
        if group in self.consumers:
            raise MessageError(f"one client cannot be in group {group} twice: use another session")
        self.consumers[group] = member

    async def run(self) -> None:
        """Send heartbeats forever. One before its time is followed by a rebalance."""
        while True:
            early = await pause(self.due, PERIOD_S)
            await self.beat()
            if early:
                for member in self.consumers.values():
                    member.wake()

    async def beat(self) -> list[AccessDenied]:
        """Send a heartbeat to the brokers of the known routes now.

        Failures are logged. Returns the errors of brokers that deny access. The heartbeat is
        finished even if the caller is cancelled.
        """
        denials: list[AccessDenied] = []
        await asyncio.shield(self._heartbeats.start(self._beat(denials), "heartbeat"))
        return denials

    async def _beat(self, denials: list[AccessDenied]) -> None:
        async with self._sending:
            if self.producers or self.consumers:
                consumers = tuple(member.data for member in self.consumers.values())
                heartbeat = Heartbeat(self._client_id, tuple(sorted(self.producers)), consumers)
                body = dump_bytes(heartbeat.to_json())
                denials += await self._send_to_all(
                    Command(RequestCode.HEART_BEAT, body=body), "heartbeat"
                )

    async def _send_to_all(self, request: Command, what: str) -> list[AccessDenied]:
        addresses = sorted(at for at in self._routes.addresses() if self.consumers or at.is_master)
        denials: list[AccessDenied] = []

        async def send(address: str) -> None:
            try:
                checked(await self._call(address, request, TIMEOUT_MS), address)
            except AccessDenied as denial:
                denials.append(denial)
                raise

        await asyncio.gather(
            *(attempt(send(at.address), f"{what} to {at.address}") for at in addresses)
        )
        return denials

    async def leave_all(self) -> None:
        """Unregister all groups, consumers first: their other members wait for the queues.

        The brokers notify these members at once (docs/protocol/consuming.md#leaving).
        """
        for group in list(self.consumers):
            header = UnregisterClientHeader(self._client_id, consumer_group=group)
            await self._leave(self.consumers, group, header)
        for group in sorted(self.producers):
            header = UnregisterClientHeader(self._client_id, producer_group=group)
            await self._leave(self.producers, group, header)
        await self._heartbeats.close()

    async def _leave(
        self, groups: MutableMapping[str, T], group: str, header: UnregisterClientHeader
    ) -> None:
        async with self._sending:
            request = Command(RequestCode.UNREGISTER_CLIENT, header.write())
            await self._send_to_all(request, "unregistering")
            groups.pop(group, None)
