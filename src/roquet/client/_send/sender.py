"""Sends one encoded message or batch: picks a queue, asks its master, tries again elsewhere within the time given."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from roquet.client._net.routes import BrokerAddress, master_of, publish_queues
from roquet.client._net.session import Session
from roquet.client._send.encoded_message import EncodedMessage
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client._send.queue_choice import FAILURE_LATENCY_MS, LatencyFaults, RoundRobin
from roquet.client.send_result import SendResult, send_results
from roquet.common.limited_log import LimitedLog
from roquet.errors import AccessDenied, CallTimeout, ConnectionClosed, ResponseError, RouteNotFound
from roquet.protocol.bodies.tables import Route
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import ResponseCode

log = logging.getLogger(__name__)

RETRIED_CODES: Final = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.SYSTEM_BUSY,
        204,
        205,
    )
)
"""Answers after which another broker, or the same one later, may do better.

See docs/protocol/producing.md#what-a-client-tries-again.

4.9 gives up when a broker is busy, 5.x and we do not: it has turned the message away, so trying again is safe.
"""
IN_FLIGHT_MAX: Final = 256
"""Sends of one producer that wait for their answers; more wait for their turn, and their time starts with it.

Enough to keep a broker busy. Apache's turns away what has waited there for 200 ms, so more would not be faster.
"""
SAME_BROKER_PAUSE_S: Final = 0.1
"""Before a broker that failed is tried once more, because there is no other."""

Pick = Callable[[Sequence[MessageQueue]], MessageQueue]
"""The one queue of a route that a message must go to."""


@dataclass
class TopicRoute:
    """What a route means for sending."""

    route: Route
    queues: tuple[MessageQueue, ...]
    turn: RoundRobin
    masters: dict[str, BrokerAddress | None] = field(default_factory=dict)

    def master(self, broker_name: str) -> BrokerAddress | None:
        if broker_name not in self.masters:
            self.masters[broker_name] = master_of(self.route, broker_name)
        return self.masters[broker_name]


class Sender:
    """Keeps: a message goes to another queue than the one it must go to never, to another broker than the one that
    failed whenever there is one.

    :param retries: tries after the first.
    :param avoid_slow_brokers: leave brokers alone for a while whose last send was slow or failed.
    """

    def __init__(
        self, session: Session, group: str, retries: int = 2, *, avoid_slow_brokers: bool = False
    ) -> None:
        self._session = session
        self._group = group
        self._retries = retries
        self._slow = LatencyFaults() if avoid_slow_brokers else None
        self._destinations: dict[str, TopicRoute] = {}
        self._turns = FifoSemaphore(IN_FLIGHT_MAX)
        self._limited_log = LimitedLog(log)

    async def send(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None = None
    ) -> list[SendResult]:
        """One result per message.

        :param timeout_ms: for all tries together.
        :param pick: chooses the queue; every try then goes there.
        :raises RouteNotFound: the topic is nowhere, and no broker would create it.
        :raises ResponseError: a broker refused it. ConnectionClosed: no connection; the message may be stored or not.
        :raises CallTimeout: no answer in time; the message may be stored or not.
        """
        async with self._turns:
            return await self._send(message, timeout_ms, pick)

    async def _send(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None
    ) -> list[SendResult]:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        failed: set[str] = set()
        for tries_left in range(self._retries, -1, -1):
            destinations = await self._destinations_of(message.topic, deadline)
            queue = pick(destinations.queues) if pick else self._next_queue(destinations, failed)
            try:
                return await self._try(message, queue, destinations, deadline)
            except (ConnectionClosed, CallTimeout, ResponseError) as error:
                if not _may_try_again(error):
                    raise
                if tries_left == 0 or _left_ms(deadline) <= 0:
                    self._session.refresh_soon(message.topic)
                    raise
                log.info("send to %s is tried again: %s", queue, error)
            failed.add(queue.broker_name)
            is_alone = pick is not None or all(
                other.broker_name in failed for other in destinations.queues
            )
            await self._before_next_try(message.topic, is_alone, deadline)
        raise AssertionError("the last try returns or raises")

    def _next_queue(self, destinations: TopicRoute, failed: set[str]) -> MessageQueue:
        if self._slow is not None:
            slow, now_ms = self._slow, _clock_ms()
            return destinations.turn.next(
                destinations.queues, lambda name: slow.suits(name, now_ms, failed)
            )
        return destinations.turn.next(
            destinations.queues, (lambda name: name not in failed) if failed else None
        )

    async def _try(
        self,
        message: EncodedMessage,
        queue: MessageQueue,
        destinations: TopicRoute,
        deadline: float,
    ) -> list[SendResult]:
        address = _address(destinations.master(queue.broker_name), queue)
        began_ms = _clock_ms()
        latency_ms: float = FAILURE_LATENCY_MS
        try:
            request = message.request(self._group, queue, self._session.runtime.now_ms())
            response = await self._session.call(address, request, max(1, _left_ms(deadline)))
            latency_ms = _clock_ms() - began_ms
        finally:
            if self._slow is not None:
                self._slow.sent(queue.broker_name, latency_ms, _clock_ms())
        return send_results(
            response, address, message.topic, queue.broker_name, message.unique_keys
        )

    async def send_one_way(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None = None
    ) -> None:
        """Send and forget: nobody learns whether it arrived.

        :raises RouteNotFound: the topic is nowhere. ConnectionClosed, CallTimeout: no connection to its broker.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        destinations = await self._destinations_of(message.topic, deadline)
        queue = (pick or destinations.turn.next)(destinations.queues)
        address = _address(destinations.master(queue.broker_name), queue)
        request = message.request(self._group, queue, self._session.runtime.now_ms())
        await self._session.notify(address, request, max(1, _left_ms(deadline)))

    # routes

    async def master(self, queue: MessageQueue, timeout_ms: int) -> str:
        """The address of the queue's master.

        :raises RouteNotFound: the topic is nowhere. ConnectionClosed: its broker has no master.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return _address(
            (await self._destinations_of(queue.topic, deadline)).master(queue.broker_name), queue
        )

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """:raises RouteNotFound: the topic is nowhere, and no broker would create it."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return (await self._destinations_of(topic, deadline)).queues

    async def _destinations_of(self, topic: str, deadline: float) -> TopicRoute:
        """Where the topic can be sent to. A route without a master is asked for anew each time: one may be back."""
        routes = self._session.routes
        route = routes.known_publish_route(topic) or await self._ask(
            topic, routes.publish_route, deadline
        )
        known = self._seen(topic, route)
        if not known.queues:
            known = self._seen(topic, await self._ask(topic, routes.refresh, deadline))
        if not known.queues:
            raise RouteNotFound(
                f"topic {topic} has no queue that may be written and whose master is up"
            )
        return known

    def _seen(self, topic: str, route: Route) -> TopicRoute:
        known = self._destinations.get(topic)
        if known is None or known.route is not route:
            start = self._session.runtime.random.getrandbits(31)
            known = self._destinations[topic] = TopicRoute(
                route, publish_queues(topic, route), RoundRobin(start)
            )
        return known

    async def _ask(
        self, topic: str, ask: Callable[[str], Awaitable[Route]], deadline: float
    ) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await ask(topic)
        except TimeoutError:
            raise CallTimeout(f"no name server told the route of {topic} in time") from None

    async def _before_next_try(self, topic: str, is_alone: bool, deadline: float) -> None:
        """Ask for the route anew, since a broker that fails may be gone; do not hurry to one without alternative."""
        try:
            async with asyncio.timeout_at(deadline):
                if is_alone:
                    await asyncio.sleep(SAME_BROKER_PAUSE_S)
                await self._session.routes.refresh(topic)
        except RouteNotFound:
            pass  # still to be created: the route it will have is known
        except (ConnectionClosed, CallTimeout, ResponseError, TimeoutError) as error:
            now, text = asyncio.get_running_loop().time(), "the route of %s cannot be refreshed: %s"
            self._limited_log.warning(topic, now, text, topic, str(error) or "no time left")


def _address(master: BrokerAddress | None, queue: MessageQueue) -> str:
    if master is None:
        raise ConnectionClosed(f"broker {queue.broker_name} has no master")
    return master.address


def _clock_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def _left_ms(deadline: float) -> int:
    return int((deadline - asyncio.get_running_loop().time()) * 1000)


def _may_try_again(error: Exception) -> bool:
    """Access control answers with the code of everything else that fails in a broker."""
    if isinstance(error, AccessDenied):
        return False
    return not isinstance(error, ResponseError) or error.code in RETRIED_CODES
