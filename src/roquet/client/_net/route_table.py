"""The routes that a client uses. They are refreshed now and then, and when a broker fails."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from functools import partial
from typing import Final

from roquet.client._net.name_servers import NameServers
from roquet.client._net.routes import (
    NEW_TOPICS,
    BrokerAddress,
    NewTopics,
    all_addresses,
    route_of_new_topic,
    unusable_reason,
)
from roquet.client._net.tasks import Tasks
from roquet.common.failure_streak import FailureStreak
from roquet.common.loop_time import now_s
from roquet.errors import (
    CallTimeout,
    ConnectionClosed,
    PeerError,
    ResponseError,
    RouteNotFound,
)
from roquet.protocol.bodies.tables import Route, parse
from roquet.protocol.headers.route import RouteHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

log = logging.getLogger(__name__)

_CREATED_WAITS_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.5, 0.7)
"""The waits between the requests for a topic that may have just been created.

A broker acknowledges the send that creates a topic, and registers the topic afterwards: within 1 to
8 ms if the broker is idle. Two seconds cover a busy machine; a wrong name is told after them.
"""
CREATED_TRIES: Final = len(_CREATED_WAITS_S) + 1
_SMALL: Final = 64 * 1024
"""Routes of up to this many bytes, those of 300 brokers, are parsed on the event loop in some ms.
Larger ones are parsed in a thread: one of 6 MB takes half a second and would block the loop."""
_DIALECT_VALUES_MAX: Final = 50_000
"""Values of a route in fastjson's dialect, or its bare integer keys. They take some 0.1 s.

Apache's name servers up to 4.9.3 write the id of each broker process as a bare key. No cluster has
so many.
"""


class RouteTable:
    """The cached routes of a client.

    For producers, a topic that does not exist yet has the route that it will be created with.

    Invariant: a route that was found stays cached, even if the name server no longer has it
    (docs/pitfalls.md#trap-51).

    :param tasks: runs what `refresh_soon` starts.
    """

    def __init__(self, name_servers: NameServers, tasks: Tasks) -> None:
        self._name_servers = name_servers
        self._tasks = tasks
        self._known: dict[str, Route] = {}
        self._new: defaultdict[str, dict[NewTopics, Route]] = defaultdict(dict)
        """The routes that topics will be created with; producers may want different ones."""
        self._told_s: dict[str, float] = {}
        """When a name server told each known route, last time (time of the event loop)."""
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._response_counts: defaultdict[str, int] = defaultdict(int)
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._failures: defaultdict[str, FailureStreak] = defaultdict(FailureStreak)
        self.changed = asyncio.Event()
        """Set when a route changed; the task that waits for it clears it."""

    async def route(self, topic: str) -> Route:
        """The cached route of a topic, or else the name server's.

        :raises RouteNotFound: no broker has the topic.
        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        :raises PeerError: the name server's answer is not a usable route.
        """
        return self._known.get(topic) or await self.refresh(topic)

    async def publish_route(self, topic: str, new_topics: NewTopics = NEW_TOPICS) -> Route:
        """The route for sends: as `route`, or the one that an unknown topic will be created with.

        See docs/protocol/producing.md#topics-made-on-demand.
        """
        try:
            return self.known_publish_route(topic, new_topics) or await self.refresh(topic)
        except RouteNotFound:
            template = await self._ask(new_topics.template)
            if template is None:
                raise
            route = self._new[topic][new_topics] = route_of_new_topic(template, new_topics.queues)
            self.changed.set()
            return route

    def known_publish_route(self, topic: str, new_topics: NewTopics = NEW_TOPICS) -> Route | None:
        """The cached route for sends; the same object as long as the route does not change."""
        known = self._known.get(topic)
        if known is None and topic in self._new:
            return self._new[topic].get(new_topics)
        return known

    async def refresh(self, topic: str) -> Route:
        """Ask the name server for a route. Concurrent callers share one request.

        :raises RouteNotFound: neither the name server nor this table has a route.
        """
        seen = self._response_counts[topic]
        async with self._asking[topic]:
            if self._response_counts[topic] == seen:
                await self._renew(topic)
        if topic not in self._known:
            raise RouteNotFound(
                f"no broker has topic {topic} (name servers asked: "
                f"{'; '.join(self._name_servers.addresses)}): "
                "create it, start its brokers, or check the addresses"
            )
        return self._known[topic]

    async def refresh_created(self, topic: str, tries: int = CREATED_TRIES) -> Route:
        """As `refresh`, for a topic that may have just been created by a send of another client.

        :param tries: how often a name server is asked; all tries take about a second, 4 take 0.2 s.
        :raises RouteNotFound: no route after so many tries.
        """
        for wait_s in _CREATED_WAITS_S[: tries - 1]:
            try:
                return await self.refresh(topic)
            except RouteNotFound:
                await asyncio.sleep(wait_s)
        return await self.refresh(topic)

    def refresh_soon(self, topic: str) -> asyncio.Task[None]:
        """Refresh a route in the background, as the name server may not answer either.

        Callers share one request, also its failure. Failures are logged.

        :returns: the task that asks; it raises nothing, and must not be cancelled.
        """
        task = self._refreshing.get(topic)
        if task is None:
            task = self._tasks.start(self._refresh_once(topic), f"route of {topic}")
            self._refreshing[topic] = task
        return task

    async def _refresh_once(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except RouteNotFound:
            pass  # a topic that the first send creates
        except (ConnectionClosed, CallTimeout):
            pass  # `Outages` tells of that
        except (PeerError, ResponseError) as error:
            if self._failures[topic].failed():
                log.warning("route not refreshed: topic=%s error=%s", topic, error)
        else:
            if self._failures[topic].ended():
                log.warning("route refreshed again: topic=%s", topic)
        finally:
            self._refreshing.pop(topic, None)

    async def _renew(self, topic: str) -> None:
        route = await self._ask(topic)
        if route is not None:
            self._told_s[topic] = now_s()
        if route is not None and route != self._known.get(topic):
            self._known[topic] = route
            self._new.pop(topic, None)
            self.changed.set()
        self._response_counts[topic] += 1

    async def _ask(self, topic: str) -> Route | None:
        response = await self._name_servers.ask(
            Command(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                RouteHeader(topic, accept_standard_json_only=True).write(),
            )
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        try:
            route = await _read(checked(response, "the name server").body)
        except ValueError as error:
            raise PeerError(
                f"the name server's route of {topic} cannot be read: {error}"
            ) from error
        if reason := unusable_reason(route):
            raise PeerError(f"the name server's route of {topic} cannot be used: {reason}")
        return route

    def ages_ms(self) -> dict[str, int]:
        """How long ago a name server told the route of each topic."""
        now = now_s()
        return {topic: int((now - told_s) * 1000) for topic, told_s in self._told_s.items()}

    async def topics(
        self, code: RequestCode = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    ) -> list[str]:
        """The names in one of the name server's topic lists.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        """
        response = checked(await self._name_servers.ask(Command(code)), "the name server")
        return parse(response.body, lambda json: [str(name) for name in json["topicList"]])

    async def refresh_all(self) -> None:
        """Refresh all cached routes. Stops if no name server answers.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        :raises PeerError: the answer for a topic was not a usable route; the others are refreshed.
        """
        wrong: PeerError | None = None
        for topic in [*self._known, *self._new]:
            async with self._asking[topic]:
                try:
                    await self._renew(topic)
                except PeerError as error:
                    wrong = error
        if wrong is not None:
            raise wrong

    def addresses(self) -> set[BrokerAddress]:
        """The addresses of all broker processes in the cached routes."""
        return {
            address
            for route in (
                *self._known.values(),
                *(route for routes in self._new.values() for route in routes.values()),
            )
            for broker in route.brokers
            for address in all_addresses(broker)
        }


async def _read(body: bytes) -> Route:
    """Parse a route.

    :raises ValueError: the body is not a route.
    """
    work = partial(parse, body, Route.from_json, _DIALECT_VALUES_MAX)
    return work() if len(body) <= _SMALL else await asyncio.to_thread(work)
