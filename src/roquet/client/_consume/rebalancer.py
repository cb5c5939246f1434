"""Keeps one member's share of its group's queues up to date: each 20 s, and whenever something changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from roquet.client._consume.allocation import Strategy, allocate
from roquet.client._consume.assignment import Assignment
from roquet.client._consume.offsets import OffsetStore
from roquet.client._net.group_members import member_ids
from roquet.client._net.routes import subscribe_queues
from roquet.client._net.session import Session
from roquet.client._net.tasks import attempt, pause
from roquet.errors import RouteNotFound
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.message import MessageQueue

PERIOD_S: Final = 20.0
SOON_S: Final = 3.0
"""How often to look again for a topic that does not exist yet, or for a queue that is locked by another member."""


class Rebalancer:
    """Keeps: what is assigned is what all members agree on, as far as the brokers tell who they are; while they do not
    tell, nothing changes (docs/protocol/consuming.md#rebalance). A queue in `_resets` is nobody's here before its new
    offset is stored.

    :param subscriptions: topic -> what is wanted of it.
    :param strategy: how the members share; None: each of them has all queues.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, Subscription],
        strategy: Strategy | None,
        assignment: Assignment,
        progress: OffsetStore,
    ) -> None:
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._strategy = strategy
        self._assignment = assignment
        self._progress = progress
        self._resets: dict[MessageQueue, int] = {}
        self._topic_missing = False
        self.due = asyncio.Event()
        """Set when the queues are to be divided anew now."""

    async def run(self) -> None:
        """Divide anew, for ever; what fails is logged and tried again."""
        while True:
            is_soon = self._topic_missing or self._assignment.waits_for_locks or self._resets
            await pause(self.due, SOON_S if is_soon else PERIOD_S)
            await self._carry_out_resets()
            await attempt(self.rebalance, f"dividing the queues of {self._group}")

    async def rebalance(self) -> None:
        """Divide anew, now."""
        self._topic_missing = self._assignment.waits_for_locks = False
        for topic, subscription in self._subscriptions.items():
            wanted = await self._share_of(topic)
            if wanted is not None:
                await self._assignment.become(wanted - self._resets.keys(), subscription)

    async def _share_of(self, topic: str) -> frozenset[MessageQueue] | None:
        """The queues of a topic that are ours; None where that cannot be known."""
        try:
            route = await self._session.routes.route(topic)
        except RouteNotFound:
            self._topic_missing = True
            return None
        queues = subscribe_queues(topic, route)
        if self._strategy is None:
            return frozenset(queues)
        members = await member_ids(self._session, self._group, route)
        if self._session.client_id not in members:  # a broker that started after our last heartbeat
            await self._session.membership.beat()
            members = await member_ids(self._session, self._group, route)
        if not members:
            return None
        return allocate(self._strategy, queues, members, self._session.client_id)

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets with the queues that are ours; soon, or as soon as their brokers take that."""
        ours = self._assignment.queues() | self._resets.keys()
        self._resets.update((queue, offset) for queue, offset in offsets.items() if queue in ours)
        self.due.set()

    async def _carry_out_resets(self) -> None:
        """Let go of these queues and store where they go on; the division that follows takes them up there."""
        for queue, offset in list(self._resets.items()):
            is_stored = await attempt(
                partial(self._set_back, queue, offset), f"setting {queue} back to {offset}"
            )
            if is_stored and self._resets[queue] == offset:
                del self._resets[queue]

    async def _set_back(self, queue: MessageQueue, offset: int) -> None:
        await self._assignment.drop([queue], stores=False)
        await self._progress.set_back(queue, offset)
