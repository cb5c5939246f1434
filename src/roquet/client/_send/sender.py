"""Sends an encoded message or batch: chooses a queue, sends to its master, and retries."""

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
"""Response codes after which a send is retried.

See docs/protocol/producing.md#what-a-client-tries-again.

Apache's client 4.9 does not retry SYSTEM_BUSY; 5.x and roquet do. The broker has not stored the
message, so a retry cannot store it twice.
"""
IN_FLIGHT_MAX: Final = 256
"""Maximum number of sends of one producer that wait for answers. Further sends wait for a slot, and
their timeout starts then.

256 keep a broker busy. Apache's broker rejects sends that have waited there for 200 ms, so more
would not be faster.
"""
SAME_BROKER_PAUSE_S: Final = 0.1
"""Pause before a retry at the same broker, if there is no other."""

Pick = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Queues of a topic -> the queue that a message must be sent to."""


@dataclass
class TopicRoute:
    """The route of a topic, prepared for sends: its queues, the round robin, cached masters."""

    route: Route
    queues: tuple[MessageQueue, ...]
    round_robin: RoundRobin
    masters: dict[str, BrokerAddress | None] = field(default_factory=dict)

    def master(self, broker_name: str) -> BrokerAddress | None:
        if broker_name not in self.masters:
            self.masters[broker_name] = master_of(self.route, broker_name)
        return self.masters[broker_name]


class Sender:
    """Sends messages to the masters of their queues, with retries.

    Invariant: all tries of a message with `pick` go to the picked queue. Any other retry goes to a
    broker that has not failed, if there is one.

    :param retries: maximum number of retries after the first try.
    :param avoid_slow_brokers: avoid brokers for a while whose last send was slow or failed.
    """

    def __init__(
        self, session: Session, group: str, retries: int = 2, *, avoid_slow_brokers: bool = False
    ) -> None:
        self._session = session
        self._group = group
        self._retries = retries
        self._slow = LatencyFaults() if avoid_slow_brokers else None
        self._topic_routes: dict[str, TopicRoute] = {}
        self._turns = FifoSemaphore(IN_FLIGHT_MAX)
        self._limited_log = LimitedLog(log)

    async def send(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None = None
    ) -> list[SendResult]:
        """Send a message or a batch; return one result per message.

        :param timeout_ms: the time in ms for all tries together.
        :param pick: chooses the queue of all tries; None means round robin.
        :raises RouteNotFound: no broker has the topic, and none would create it.
        :raises ResponseError: a broker refused the message.
        :raises ConnectionClosed: no connection after all tries; the message may be stored.
        :raises CallTimeout: no answer in time; the message may be stored.
        """
        async with self._turns:
            return await self._send(message, timeout_ms, pick)

    async def _send(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None
    ) -> list[SendResult]:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        failed: set[str] = set()
        for tries_left in range(self._retries, -1, -1):
            topic_route = await self._topic_route(message.topic, deadline)
            queue = pick(topic_route.queues) if pick else self._next_queue(topic_route, failed)
            try:
                return await self._try(message, queue, topic_route, deadline)
            except (ConnectionClosed, CallTimeout, ResponseError) as error:
                if not _may_try_again(error):
                    raise
                if tries_left == 0 or _left_ms(deadline) <= 0:
                    self._session.refresh_soon(message.topic)
                    raise
                log.info("send failed, will be retried: queue=%s error=%s", queue, error)
            failed.add(queue.broker_name)
            is_alone = pick is not None or all(
                other.broker_name in failed for other in topic_route.queues
            )
            await self._before_next_try(message.topic, is_alone, deadline)
        raise AssertionError("the last try returns or raises")

    def _next_queue(self, topic_route: TopicRoute, failed: set[str]) -> MessageQueue:
        if self._slow is not None:
            slow = self._slow
            now_ms = _clock_ms()
            return topic_route.round_robin.next(
                topic_route.queues, lambda name: slow.suits(name, now_ms, failed)
            )
        return topic_route.round_robin.next(
            topic_route.queues, (lambda name: name not in failed) if failed else None
        )

    async def _try(
        self,
        message: EncodedMessage,
        queue: MessageQueue,
        topic_route: TopicRoute,
        deadline: float,
    ) -> list[SendResult]:
        address = _address(topic_route.master(queue.broker_name), queue)
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
        """Send a message one-way: without an answer and without retries.

        :raises RouteNotFound: no broker has the topic, and none would create it.
        :raises ConnectionClosed, CallTimeout: there is no connection to the broker.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        topic_route = await self._topic_route(message.topic, deadline)
        queue = (pick or topic_route.round_robin.next)(topic_route.queues)
        address = _address(topic_route.master(queue.broker_name), queue)
        request = message.request(self._group, queue, self._session.runtime.now_ms())
        await self._session.notify(address, request, max(1, _left_ms(deadline)))

    # routes

    async def master(self, queue: MessageQueue, timeout_ms: int) -> str:
        """The address of a queue's master.

        :raises RouteNotFound: no broker has the topic, and none would create it.
        :raises ConnectionClosed: the queue's broker has no master.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return _address(
            (await self._topic_route(queue.topic, deadline)).master(queue.broker_name), queue
        )

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """The queues of a topic that messages may be sent to.

        :raises RouteNotFound: no broker has the topic, and none would create it.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return (await self._topic_route(topic, deadline)).queues

    async def _topic_route(self, topic: str, deadline: float) -> TopicRoute:
        """The route of a topic. One without a master is always refreshed: it may be back."""
        routes = self._session.routes
        route = routes.known_publish_route(topic) or await self._ask(
            topic, routes.publish_route, deadline
        )
        known = self._seen(topic, route)
        if not known.queues:
            known = self._seen(topic, await self._ask(topic, routes.refresh, deadline))
        if not known.queues:
            raise RouteNotFound(f"topic {topic} has no writable queue whose master is up")
        return known

    def _seen(self, topic: str, route: Route) -> TopicRoute:
        known = self._topic_routes.get(topic)
        if known is None or known.route is not route:
            start = self._session.runtime.random.getrandbits(31)
            known = self._topic_routes[topic] = TopicRoute(
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
            raise CallTimeout(f"no name server returned the route of {topic} in time") from None

    async def _before_next_try(self, topic: str, is_alone: bool, deadline: float) -> None:
        """Refresh the route, since the failed broker may be gone.

        :param is_alone: there is no other broker: pause before the same one is tried again.
        """
        try:
            async with asyncio.timeout_at(deadline):
                if is_alone:
                    await asyncio.sleep(SAME_BROKER_PAUSE_S)
                await self._session.routes.refresh(topic)
        except RouteNotFound:
            pass  # the topic is to be created by this send: the route it will have is known
        except (ConnectionClosed, CallTimeout, ResponseError, TimeoutError) as error:
            now = asyncio.get_running_loop().time()
            text = "route not refreshed: topic=%s error=%s"
            self._limited_log.warning(topic, now, text, topic, str(error) or "no time left")


def _address(master: BrokerAddress | None, queue: MessageQueue) -> str:
    if master is None:
        raise ConnectionClosed(f"broker {queue.broker_name} has no master for queue {queue}")
    return master.address


def _clock_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def _left_ms(deadline: float) -> int:
    return int((deadline - asyncio.get_running_loop().time()) * 1000)


def _may_try_again(error: Exception) -> bool:
    """Whether a send may be retried after `error`.

    AccessDenied is checked first, because its response code is SYSTEM_ERROR.
    """
    if isinstance(error, AccessDenied):
        return False
    return not isinstance(error, ResponseError) or error.code in RETRIED_CODES
