"""The subscriptions of a member: they change while it runs, and follow patterns of topics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from roquet.client._consume.context import MemberContext
from roquet.client._consume.rebalancer import Rebalancer
from roquet.client._net.outages import level_of
from roquet.client._net.tasks import Tasks, attempt
from roquet.client.selector import Sql, check_filter, subscription_to
from roquet.errors import (
    AccessDenied,
    ClientStateError,
    ConfigError,
    RoquetError,
    RouteNotFound,
)
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.message import RETRY_PREFIX, check_topic
from roquet.protocol.remoting.codes import RequestCode

log = logging.getLogger(__name__)

MATCH_PERIOD_S: Final = 30.0
"""Period in which a name server is asked for topics that match a pattern."""
ROUTE_TRIES: Final = 4
"""How often a name server is asked for a topic before the member goes on without it: a send may
have created it some milliseconds ago. It takes 0.2 s, after which the member looks for it in the
background."""
MISSING_MAX: Final = 3
"""A matched topic is dropped when so many lists in a row lack it. A name server that has just been
started lists a topic only when its brokers have registered, every 30 s."""


class SubscriptionChanges:
    """Changes the subscriptions of a running member.

    Every change is told to the brokers by a heartbeat, before the rebalance that carries it out. A
    change that has begun is finished even if the caller is cancelled.

    Invariant: one change is made at a time. The version of a subscription grows when it changes.
    """

    def __init__(self, context: MemberContext, rebalancer: Rebalancer, tasks: Tasks) -> None:
        self._context = context
        self._session = context.session
        self._rebalancer = rebalancer
        self._tasks = tasks
        self._turn = asyncio.Lock()
        self._missing: Counter[str] = Counter()
        """Of each topic that matched a pattern: how many lists in a row lacked it."""
        self.can_change = False
        """Whether the member is in its group, so that there is something to tell the brokers."""
        self._unusable: set[str] = set()
        """New topics that match a pattern and could not be subscribed when they were last tried."""

    def filters(self) -> dict[str, str | Sql]:
        """The topics that are subscribed now, with their filters."""
        return {
            topic: each.expression if each.is_by_tag else Sql(each.expression)
            for topic, each in self._context.subscriptions.items()
            if topic != self._retry_topic
        }

    async def prepare(self) -> None:
        """Find the topics that match, look up routes, and check filters, before the member joins.

        Raises as `Consumer.start`.
        """
        for topic, selector in (await self._matching()).items():
            if topic not in self._context.subscriptions:
                self._missing[topic] = 0
                self._context.subscriptions[topic] = self._subscription(topic, selector)
        for subscription in self._context.subscriptions.values():
            await self._check(subscription)

    def is_by_pattern(self, topic: str) -> bool:
        """Whether the topic is subscribed, or would be, only because a pattern matches it."""
        if topic in self._context.subscriptions:
            return topic in self._missing
        return bool(self._context.patterns.matching([topic], ()))

    async def subscribe(self, topic: str, selector: str | Sql) -> None:
        """Raises as `Consumer.subscribe`."""
        check_topic(topic)
        if topic == self._retry_topic:
            raise ConfigError(f"topic {topic}: the member is subscribed to its retry topic anyway")
        subscription = self._subscription(topic, selector)
        try:
            await self._check(subscription)
        except RoquetError as error:
            if self.can_change:
                raise
            raise _not_in_group() from error  # the close ended the connections
        await self._finish({topic: subscription})

    async def unsubscribe(self, topic: str) -> None:
        """Raises as `Consumer.unsubscribe`."""
        if topic not in self.filters():
            raise ConfigError(
                f"topic {topic} is not subscribed: `Consumer.subscriptions()` has those that are"
            )
        if topic in self._missing:
            raise ConfigError(f"topic {topic} matches a pattern: it would be subscribed again")
        await self._finish({}, [topic])

    async def follow_patterns(self) -> None:
        """Subscribe to topics that match a pattern and are new, and drop those that are gone.

        A new topic whose route or filter cannot be used is logged once, and tried again.

        :raises RoquetError: no name server answers.
        """
        found = await self._matching()
        for topic in self._missing:
            self._missing[topic] = 0 if topic in found else self._missing[topic] + 1
        gone = [topic for topic, missing in self._missing.items() if missing >= MISSING_MAX]
        added: dict[str, Subscription] = {}
        for topic, selector in found.items():
            if topic in self._context.subscriptions:
                continue
            subscription = self._subscription(topic, selector)
            # One that cannot be subscribed does not keep the others out.
            if await self._is_usable(subscription):
                added[topic] = subscription
        if added or gone:
            log.info(
                "topics that match a pattern changed: group=%s added=%s gone=%s",
                self._context.group,
                ",".join(sorted(added)),
                ",".join(sorted(gone)),
            )
            for topic in gone:
                del self._missing[topic]
            if not await self._change(added, gone):
                self._missing.update(dict.fromkeys(added, 0))

    @property
    def _retry_topic(self) -> str:
        return RETRY_PREFIX + self._context.group

    async def _matching(self) -> dict[str, str | Sql]:
        if not self._context.patterns:
            return {}
        routes = self._session.routes
        own = await routes.topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return self._context.patterns.matching(await routes.topics(), own)

    def _subscription(self, topic: str, selector: str | Sql) -> Subscription:
        return subscription_to(topic, selector, self._version_after(topic))

    def _version_after(self, topic: str) -> int:
        """A version that is higher than that of the topic's subscription."""
        known = self._context.subscriptions.get(topic)
        return max(self._session.runtime.now_ms(), 0 if known is None else known.version + 1)

    async def _check(self, subscription: Subscription) -> None:
        """Look up the topic's route, and have its brokers check an SQL92 expression."""
        topic = subscription.topic
        tries = 1 if topic.startswith(RETRY_PREFIX) else ROUTE_TRIES
        with suppress(RouteNotFound):  # the rebalancer looks for it, and tells
            await self._session.routes.refresh_created(topic, tries)
        if not subscription.is_by_tag:
            await check_filter(self._session, self._context.group, subscription)

    async def _is_usable(self, subscription: Subscription) -> bool:
        topic = subscription.topic
        try:
            await self._check(subscription)
        except RoquetError as error:
            log.log(
                logging.DEBUG if topic in self._unusable else level_of(error),
                "topic that matches a pattern cannot be subscribed yet: group=%s topic=%s error=%s",
                self._context.group,
                topic,
                error,
            )
            self._unusable.add(topic)
            return False
        self._unusable.discard(topic)
        return True

    async def _finish(
        self, added: Mapping[str, Subscription], removed: Collection[str] = ()
    ) -> None:
        """Make a change, also if the caller is cancelled.

        :raises AccessDenied: a broker refuses the change, which was taken back.
        :raises ClientStateError: the consumer is still starting, or was closed meanwhile.
        """
        if not self.can_change:
            raise _not_in_group()
        denials: list[AccessDenied] = []

        async def change() -> None:
            denials.extend(await self._change(added, removed))

        changing = self._tasks.start(change(), f"subscriptions of {self._context.group}")
        await asyncio.wait([changing])
        if changing.cancelled():
            raise _not_in_group()
        changing.result()
        if denials:
            raise denials[0]

    async def _change(
        self, added: Mapping[str, Subscription], removed: Collection[str]
    ) -> list[AccessDenied]:
        """Add and remove subscriptions; return the errors of brokers that deny those added.

        Then nothing is added: these brokers would not know this member any more.
        """
        async with self._turn:
            subscriptions = self._context.subscriptions
            before = {topic: subscriptions[topic] for topic in added if topic in subscriptions}
            for topic in removed:
                subscriptions.pop(topic, None)
            for topic, subscription in added.items():
                subscriptions[topic] = replace(
                    subscription, version=max(subscription.version, self._version_after(topic))
                )
            denials = await self._tell_brokers()
            if denials and added:
                for topic in added:
                    version = self._version_after(topic)
                    del subscriptions[topic]
                    if topic in before:
                        subscriptions[topic] = replace(before[topic], version=version)
                await self._tell_brokers()
            await attempt(self._rebalancer.rebalance(), f"rebalancing group {self._context.group}")
            return denials if added else []

    async def _tell_brokers(self) -> list[AccessDenied]:
        membership = self._session.membership
        membership.subscribe(self._context.group, tuple(self._context.subscriptions.values()))
        return await membership.beat()


def _not_in_group() -> ClientStateError:
    return ClientStateError(
        "subscriptions change while the consumer is in its group: "
        "this one is still starting, or was closed meanwhile"
    )
