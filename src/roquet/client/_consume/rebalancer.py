"""The rebalancer of a group member: applies the allocation every 20 s and after changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from roquet.allocation import allocate
from roquet.client._consume.assignment import Assignment
from roquet.client._consume.context import MemberContext
from roquet.client._net.outages import level_of
from roquet.client._net.routes import all_addresses, subscribe_queues
from roquet.client._net.tasks import attempt, pause
from roquet.common.loop_time import now_s
from roquet.errors import PeerError, RoquetError, RouteNotFound
from roquet.protocol.bodies.tables import Route
from roquet.protocol.headers.members import ConsumerGroupHeader
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import RETRY_PREFIX, MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
PERIOD_S: Final = 20.0
SOON_S: Final = 3.0
"""The period while another member has a queue's lock."""
LOOK_PERIOD_S: Final = 1.0
"""The period in which name servers are asked for topics that do not exist yet. It is shorter than
the timeout of a request, so that the first request to a new topic has its reply in time."""


class Rebalancer:
    """Computes which queues this member gets, and applies it to the `Assignment`.

    Every member computes the same allocation from the members and queues that brokers and name
    servers list. Without a list of members the assignment does not change
    (docs/protocol/consuming.md#rebalance).

    Invariant: one rebalance is made at a time. A queue in `_resets` is not assigned again until its
    new offset is stored.
    """

    def __init__(self, context: MemberContext, assignment: Assignment) -> None:
        self._context = context
        self._session = context.session
        self._group = context.group
        self._assignment = assignment
        self._turn = asyncio.Lock()
        self._resets: dict[MessageQueue, int] = {}
        self._is_incomplete = False
        """Another member has a lock that this one needs."""
        self._unknown: dict[str, float] = {}
        """The topics that do not exist yet; since when that is known, in time of the event loop."""
        self._told: set[str] = set()
        """Those of them that the log names."""
        self.changes = 0
        """How many rebalances changed the queues of this member."""
        self.due = asyncio.Event()
        """Set to make `run` rebalance now."""

    async def run(self) -> None:
        """Rebalance forever; failures are logged and retried."""
        while True:
            is_soon = self._is_incomplete or self._resets
            await pause(self.due, SOON_S if is_soon else PERIOD_S)
            async with self._turn:
                await self._carry_out_resets()
            await attempt(self.rebalance(), f"rebalancing group {self._group}")

    async def rebalance(self) -> None:
        """Rebalance all topics now.

        :raises PeerError: a topic's route cannot be used; the other topics are rebalanced.
        """
        async with self._turn:
            await self._rebalance()

    async def _rebalance(self) -> None:
        self._is_incomplete = False
        known_before, self._unknown = self._unknown, {}
        wrong: PeerError | None = None
        subscriptions = dict(self._context.subscriptions)
        held = self._assignment.queues()
        await self._assignment.drop(
            sorted(each for each in held if each.topic not in subscriptions)
        )
        for topic, subscription in subscriptions.items():
            try:
                wanted = await self._allocated(topic)
            except RouteNotFound:
                self._unknown[topic] = known_before.get(topic, now_s())
                continue
            except PeerError as error:
                wrong = error
                continue
            if wanted is not None:
                # A queue that is assigned stays so until its reset is carried out: to drop it here
                # would store its offset, perhaps over the new one.
                waiting = self._resets.keys() - self._assignment.queues()
                has_all = await self._assignment.apply(wanted - waiting, subscription)
                self._is_incomplete |= not has_all
        self.changes += self._assignment.queues() != held
        if wrong is not None:
            raise wrong

    async def look_for_topics(self) -> None:
        """Ask a name server for the topics that do not exist yet; rebalance if there is one now.

        :raises RoquetError: no name server answers, or its answer cannot be used.
        """
        for topic in sorted(self._unknown):
            try:
                await self._session.routes.refresh(topic)
            except RouteNotFound as error:
                self._tell_of_unknown(topic, error)
                continue
            self.due.set()
            if topic in self._told:
                log.info("topic found: group=%s topic=%s", self._group, topic)
                self._told.discard(topic)

    def _tell_of_unknown(self, topic: str, error: RouteNotFound) -> None:
        """Warn once of a topic that has been missing for `LOOK_PERIOD_S`.

        A topic that the first send has just created is missing for some ms. The retry topic of a
        new group comes with its first heartbeat, and is of no interest to users.
        """
        since = self._unknown.get(topic, now_s())
        is_young = now_s() - since < LOOK_PERIOD_S
        if topic in self._told or is_young or topic.startswith(RETRY_PREFIX):
            return
        self._told.add(topic)
        log.warning(
            "topic not found, the consumer looks for it every %g s (a first send creates it, where "
            "brokers may create topics): "
            "group=%s topic=%s error=%s",
            LOOK_PERIOD_S,
            self._group,
            topic,
            error,
        )

    async def drop_unlocked(self) -> None:
        """Drop the queues whose locks were lost, and rebalance if there are any."""
        if await self._assignment.drop_unlocked():
            self.due.set()

    async def _allocated(self, topic: str) -> frozenset[MessageQueue] | None:
        """The queues of a topic for this member; None if they cannot be computed now.

        :raises RouteNotFound: the topic does not exist yet.
        """
        route = await self._session.routes.route(topic)
        queues = subscribe_queues(topic, route)
        if self._context.broadcast:
            return frozenset(queues)
        members = await self._member_ids(route)
        # A broker that started after the last heartbeat does not list this member yet.
        if self._session.client_id not in members:
            await self._session.membership.beat()
            members = await self._member_ids(route)
        if not members:
            return None
        if not queues:
            return frozenset()
        return self._shared(topic, queues, members)

    def _shared(
        self, topic: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> frozenset[MessageQueue] | None:
        """The strategy's answer. None if it fails, so that the queues stay where they are."""
        strategy, me = self._context.strategy, self._session.client_id
        if me not in members:
            log.warning(
                "no queues, the brokers do not list this member of the group: "
                "group=%s topic=%s client_id=%s members=%d",
                self._group,
                topic,
                me,
                len(members),
            )
        try:
            return allocate(strategy, self._group, me, queues, members)
        except Exception:  # of the application's own strategy
            log.exception(
                "allocation failed, the queues stay where they are: "
                "group=%s topic=%s strategy=%s queues=%d members=%d",
                self._group,
                topic,
                strategy.name,
                len(queues),
                len(members),
            )
            return None

    async def _member_ids(self, route: Route) -> list[str]:
        """The client ids of the group's members; empty if no broker of the route returns a list.

        Brokers are asked in random order, masters before slaves, until one returns a list.
        """
        addresses = [at for broker in route.brokers for at in all_addresses(broker)]
        self._session.runtime.random.shuffle(addresses)
        for at in sorted(addresses, key=lambda at: not at.is_master):
            fields = ConsumerGroupHeader(self._group).write()
            request = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
            try:
                response = await self._session.call(at.address, request, TIMEOUT_MS)
                if response.code == ResponseCode.SUCCESS:
                    return _read_ids(response.body)
            except (RoquetError, ValueError) as error:
                log.log(
                    level_of(error),
                    "group members not found, the next broker is asked: "
                    "group=%s broker=%s error=%s",
                    self._group,
                    at.address,
                    error,
                )
        return []

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Reset the offsets of the queues that this member holds; `run` does it soon.

        A reset that a broker does not accept is tried again.
        """
        self._resets.update(
            (queue, offset)
            for queue, offset in offsets.items()
            if self._assignment.is_held(queue) or queue in self._resets
        )
        self.due.set()

    async def _carry_out_resets(self) -> None:
        """Drop the reset queues and store their new offsets.

        The rebalance that follows assigns them again, and they begin at these offsets.
        """
        for queue, offset in list(self._resets.items()):
            is_stored = await attempt(
                self._reset_queue(queue, offset), f"resetting {queue} to offset {offset}"
            )
            if is_stored and self._resets[queue] == offset:
                del self._resets[queue]

    async def _reset_queue(self, queue: MessageQueue, offset: int) -> None:
        await self._assignment.drop([queue], stores=False)
        await self._context.offsets.reset(queue, offset)


def _read_ids(body: bytes) -> list[str]:
    """Read the client ids of a response.

    :raises ValueError: the body is not a list of client ids.
    """
    document = load(body)
    ids = document.get("consumerIdList") if isinstance(document, dict) else None
    if not isinstance(ids, list):
        raise ValueError("no consumerIdList in the response")
    return [str(client_id) for client_id in ids]
