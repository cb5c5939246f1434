"""The routes a client uses: asked for once, then again every 30 s and whenever a broker cannot be reached."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Final

from roquet.client._net.name_servers import NameServers
from roquet.client._net.routes import (
    BrokerAddress,
    all_addresses,
    template_for_new_topic,
    why_impossible,
)
from roquet.errors import PeerError, RouteNotFound
from roquet.protocol.bodies.tables import DIALECT_VALUES_MAX, Route, parse
from roquet.protocol.headers.routing import RouteHeader
from roquet.protocol.records.message import DEFAULT_TOPIC
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import checked

REFRESH_PERIOD_S = 30.0
_SMALL: Final = 64 * 1024
"""Bytes of a route that is read at once, in some ms: that of 300 brokers. One of 6 MB takes half a second, and the
loop belongs to the program, which may have other things to do."""


class RouteTable:
    """Keeps: a route once found stays known, even when the name server no longer knows it (docs/pitfalls.md#trap-51).

    A topic that does not exist yet has, for producers, the route that it will be created with.
    """

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._known: dict[str, Route] = {}
        self._templates: dict[str, Route] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: defaultdict[str, int] = defaultdict(int)
        self.changed = asyncio.Event()
        """Set when a route changed; who waits for it clears it."""

    async def route(self, topic: str) -> Route:
        """The topic's route, as known here or else as the name server says.

        :raises RouteNotFound: no broker has the topic.
        :raises ConnectionClosed: no name server can be reached; CallTimeout: none answers.
        :raises PeerError: what it tells is no route.
        """
        return self._known.get(topic) or await self.refresh(topic)

    async def publish_route(self, topic: str) -> Route:
        """The same, or for an unknown topic the route it gets by being sent to.

        See docs/protocol/producing.md#topics-made-on-demand.
        """
        try:
            return self.known_publish_route(topic) or await self.refresh(topic)
        except RouteNotFound:
            default = await self._ask(DEFAULT_TOPIC)
            if default is None:
                raise
            self._templates[topic] = template_for_new_topic(default)
            self.changed.set()
            return self._templates[topic]

    def known_publish_route(self, topic: str) -> Route | None:
        """The same without asking; one and the same object as long as nothing changed."""
        return self._known.get(topic) or self._templates.get(topic)

    async def refresh(self, topic: str) -> Route:
        """The route as the name server knows it now; callers that come together share one answer.

        :raises RouteNotFound: neither the name server nor this table knows one.
        """
        seen = self._answers[topic]
        async with self._asking[topic]:
            if self._answers[topic] == seen:
                await self._renew(topic)
        if topic not in self._known:
            raise RouteNotFound(
                f"no broker has topic {topic}, name servers {'; '.join(self._name_servers.addresses)}"
            )
        return self._known[topic]

    async def _renew(self, topic: str) -> None:
        route = await self._ask(topic)
        if route is not None and route != self._known.get(topic):
            self._known[topic] = route
            self._templates.pop(topic, None)
            self.changed.set()
        self._answers[topic] += 1

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
        if why := why_impossible(route):
            raise PeerError(f"the name server's route of {topic} cannot be used: {why}")
        return route

    async def topics(
        self, code: RequestCode = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    ) -> list[str]:
        """The names in one of the name server's topic lists.

        :raises ConnectionClosed: no name server can be reached; CallTimeout: none answers.
        """
        response = checked(await self._name_servers.ask(Command(code)), "the name server")
        return parse(response.body, lambda json: [str(name) for name in json["topicList"]])

    async def refresh_all(self) -> None:
        """Ask again for every route in use; stops at the first name server trouble, since all would have it.

        :raises ConnectionClosed: no name server can be reached; CallTimeout: none answers.
        :raises PeerError: of a topic it told what is no route; the others are known.
        """
        wrong: PeerError | None = None
        for topic in [*self._known, *self._templates]:
            async with self._asking[topic]:
                try:
                    await self._renew(topic)
                except PeerError as error:
                    wrong = error
        if wrong is not None:
            raise wrong

    def addresses(self) -> set[BrokerAddress]:
        """Every broker process that a known route mentions."""
        return {
            address
            for route in self._routes()
            for broker in route.brokers
            for address in all_addresses(broker)
        }

    def _routes(self) -> Iterator[Route]:
        yield from self._known.values()
        yield from self._templates.values()


async def _read(body: bytes) -> Route:
    """:raises ValueError: it is no route."""
    work = partial(parse, body, Route.from_json, DIALECT_VALUES_MAX)
    return work() if len(body) <= _SMALL else await asyncio.to_thread(work)
