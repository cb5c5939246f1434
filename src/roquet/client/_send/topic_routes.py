"""The routes of the topics that a producer sends to: their queues, and the masters of these."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from roquet.client._net.routes import NEW_TOPICS, NewTopics, master_of, publish_queues
from roquet.client._net.session import Session
from roquet.client._net.tasks import deadline_after
from roquet.client._send.queue_choice import RoundRobin
from roquet.common.loop_time import now_s
from roquet.errors import CallTimeout, ConnectionClosed, RouteNotFound
from roquet.protocol.bodies.tables import Route
from roquet.protocol.records.message import MessageQueue, Permission

REFRESH_WAIT_S: Final = 0.3
"""How long a send waits for a new route before it goes on with the one that is known."""


class NotWritable(RouteNotFound):
    """No queue of a topic may be written to, whichever brokers are up."""


@dataclass
class TopicRoute:
    """The route of a topic, prepared for sends: its queues, the round robin, cached masters."""

    route: Route
    queues: tuple[MessageQueue, ...]
    round_robin: RoundRobin
    _masters: dict[str, str] = field(default_factory=dict)

    @property
    def broker_names(self) -> set[str]:
        return {queue.broker_name for queue in self.queues}

    def master(self, queue: MessageQueue) -> str:
        """The address of a queue's master.

        :raises ConnectionClosed: the queue's broker has no master.
        """
        address = self._masters.get(queue.broker_name)
        if address is None:
            master = master_of(self.route, queue.broker_name)
            if master is None:
                raise ConnectionClosed(
                    f"broker {queue.broker_name} has no master for queue {queue}"
                )
            address = self._masters[queue.broker_name] = master.address
        return address


class TopicRoutes:
    """The routes of a producer's topics. All methods ask a name server if they need to.

    Invariant: there is one `TopicRoute` per topic as long as the topic's route does not change.

    :param new_topics: how a broker creates the topics that do not exist.
    """

    def __init__(self, session: Session, new_topics: NewTopics = NEW_TOPICS) -> None:
        self._session = session
        self.new_topics = new_topics
        self._known: dict[str, TopicRoute] = {}

    def usable(self, topic: str) -> TopicRoute | None:
        """The route of a topic if it is known and has queues: no name server is asked."""
        route = self._session.routes.known_publish_route(topic, self.new_topics)
        if route is None:
            return None
        known = self._prepared(topic, route)
        return known if known.queues else None

    async def get(self, topic: str, deadline: float) -> TopicRoute:
        """The route of a topic. One without a master is always refreshed: it may be back.

        :param deadline: the time of the event loop until which name servers are asked.
        :raises RouteNotFound: no broker has the topic, and none would create it; or no master of
            the topic is up.
        :raises NotWritable: the topic may not be written to.
        :raises ConnectionClosed, CallTimeout: no name server answered.
        """
        known = self.usable(topic)
        if known is not None:
            return known
        routes = self._session.routes
        route = routes.known_publish_route(topic, self.new_topics) or await self._ask(
            topic, partial(routes.publish_route, new_topics=self.new_topics), deadline
        )
        known = self._prepared(topic, route)
        if not known.queues:
            known = self._prepared(topic, await self._ask(topic, routes.refresh, deadline))
        if not known.queues:
            has_writable = any(data.perm & Permission.WRITE for data in known.route.queues)
            kind = RouteNotFound if has_writable else NotWritable
            raise kind(f"topic {topic} has no writable queue whose master is up")
        return known

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """The queues of a topic that messages may be sent to. Raises as `get`."""
        return (await self.get(topic, deadline_after(timeout_ms))).queues

    async def master(self, queue: MessageQueue, timeout_ms: int) -> str:
        """The address of a queue's master. Raises as `get`.

        :raises ConnectionClosed: the queue's broker has no master.
        """
        return (await self.get(queue.topic, deadline_after(timeout_ms))).master(queue)

    async def refresh(self, topic: str, deadline: float) -> None:
        """Refresh a route after a broker failed, as it may be gone.

        If name servers are slow, too, the request goes on and this ends after `REFRESH_WAIT_S`:
        the known route may have other brokers.
        """
        asking = self._session.routes.refresh_soon(topic)
        left_s = min(REFRESH_WAIT_S, deadline - now_s())
        if left_s > 0:
            await asyncio.wait([asking], timeout=left_s)

    def _prepared(self, topic: str, route: Route) -> TopicRoute:
        known = self._known.get(topic)
        if known is None or known.route is not route:
            start = self._session.runtime.random.getrandbits(31)
            known = TopicRoute(route, publish_queues(topic, route), RoundRobin(start))
            self._known[topic] = known
        return known

    async def _ask(
        self, topic: str, ask: Callable[[str], Awaitable[Route]], deadline: float
    ) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await ask(topic)
        except TimeoutError:
            raise CallTimeout(f"no name server returned the route of {topic} in time") from None
