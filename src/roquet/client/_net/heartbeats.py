"""Heartbeats: they register the groups of this client at the brokers, every 30 s by default."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Final, TypeVar

from roquet.client._net.broker_requests import CheckBackHandler, MemberCallbacks
from roquet.client._net.name_servers import Call
from roquet.client._net.route_table import RouteTable
from roquet.client._net.tasks import Tasks, attempt, pause
from roquet.errors import AccessDenied, ConfigError
from roquet.protocol.bodies.tables import Heartbeat, Subscription
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

    def __init__(
        self, client_id: str, call: Call, routes: RouteTable, period_s: float = PERIOD_S
    ) -> None:
        self._client_id = client_id
        self._period_s = period_s
        self._call = call
        self._routes = routes
        self.producers: dict[str, CheckBackHandler | None] = {}
        self.consumers: dict[str, MemberCallbacks] = {}
        self._producer_counts: Counter[str] = Counter()
        self._sending = asyncio.Lock()
        self._heartbeats = Tasks()
        self._waiting: tuple[asyncio.Task[None], list[AccessDenied]] | None = None
        """A heartbeat that waits for the one under way, and its denials."""
        self.due = routes.changed
        """Set to send heartbeats now."""

    def join_as_producer(self, group: str, on_check_back: CheckBackHandler | None = None) -> None:
        """Add a producer to its group. Several producers of a client may have the same group.

        :param on_check_back: handles check-backs of the group.
        :raises ConfigError: another producer of the group handles its check-backs.
        """
        if on_check_back is not None and self.producers.get(group) is not None:
            raise ConfigError(
                f"group {group} has a TransactionProducer in this session: brokers ask one of "
                "them for all transactions, so give the other one another group"
            )
        self.producers[group] = on_check_back or self.producers.get(group)
        self._producer_counts[group] += 1
        self.due.set()

    def join_as_consumer(self, group: str, member: MemberCallbacks) -> None:
        """Add a consumer group.

        :raises ConfigError: this client is in the group already.
        """
        if group in self.consumers:
            raise ConfigError(
                f"one session cannot be in group {group} twice: brokers count members by their "
                "client id; give the second consumer a session of its own"
            )
        self.consumers[group] = member

    def subscribe(self, group: str, subscriptions: tuple[Subscription, ...]) -> None:
        """Change what the next heartbeats say about the subscriptions of a consumer group."""
        member = self.consumers[group]
        self.consumers[group] = replace(
            member, data=replace(member.data, subscriptions=subscriptions)
        )

    async def run(self) -> None:
        """Send heartbeats forever. One before its time is followed by a rebalance."""
        while True:
            early = await pause(self.due, self._period_s)
            await self.beat()
            if early:
                for member in self.consumers.values():
                    member.wake()

    async def beat(self) -> list[AccessDenied]:
        """Send a heartbeat to the brokers of the known routes now.

        Failures are logged. Returns the errors of brokers that deny access. The heartbeat is
        finished even if the caller is cancelled. Callers that wait for the one under way share the
        next one: otherwise those of all rebalances would wait in turn for a silent broker.
        """
        if self._waiting is None or self._waiting[0].done():
            denials: list[AccessDenied] = []
            self._waiting = self._heartbeats.start(self._beat(denials), "heartbeat"), denials
        beating, denials = self._waiting
        await asyncio.shield(beating)
        return denials

    async def _beat(self, denials: list[AccessDenied]) -> None:
        async with self._sending:
            self._waiting = None
            if self.producers or self.consumers:
                consumers = tuple(member.data for member in self.consumers.values())
                heartbeat = Heartbeat(self._client_id, tuple(sorted(self.producers)), consumers)
                body = dump_bytes(heartbeat.to_json())
                denials += await self._send_to_all(
                    Command(RequestCode.HEART_BEAT, body=body), "heartbeat", bool(self.consumers)
                )

    async def _send_to_all(
        self, request: Command, what: str, has_consumers: bool
    ) -> list[AccessDenied]:
        addresses = sorted(at for at in self._routes.addresses() if has_consumers or at.is_master)
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
            await self.leave_as_consumer(group)
        for group in sorted(self.producers):
            self._producer_counts[group] = 0
            await self._unregister_producers(group)
        await self._heartbeats.close()

    async def leave_as_consumer(self, group: str) -> None:
        """Unregister a consumer group, if this client is in it."""
        if group in self.consumers:
            header = UnregisterClientHeader(self._client_id, consumer_group=group)
            await self._leave(self.consumers, group, header)

    async def leave_as_producer(
        self, group: str, on_check_back: CheckBackHandler | None = None
    ) -> None:
        """Remove a producer from its group. The last one unregisters the group.

        :param on_check_back: what it joined with.
        """
        self._producer_counts[group] -= 1
        if self._producer_counts[group] == 0:
            await self._unregister_producers(group)
        elif on_check_back is not None:
            self.producers[group] = None

    async def _unregister_producers(self, group: str) -> None:
        header = UnregisterClientHeader(self._client_id, producer_group=group)
        await self._leave(self.producers, group, header, lambda: self._producer_counts[group] <= 0)

    async def _leave(
        self,
        groups: MutableMapping[str, T],
        group: str,
        header: UnregisterClientHeader,
        is_left: Callable[[], bool] = lambda: True,
    ) -> None:
        """:param is_left: whether nobody has joined the group while this waited."""
        async with self._sending:
            if not is_left():
                return
            has_consumers = bool(self.consumers)
            # Removed first: if the group is joined again meanwhile, that member stays.
            groups.pop(group, None)
            request = Command(RequestCode.UNREGISTER_CLIENT, header.write())
            await self._send_to_all(request, "unregistering", has_consumers)
