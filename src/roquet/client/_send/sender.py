"""Sends an encoded message or batch: chooses a queue, sends to its master, and retries."""

from __future__ import annotations

import logging
from typing import Final

from roquet.client._net.session import Session
from roquet.client._net.tasks import deadline_after
from roquet.client._send.encoded_message import EncodedMessage
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client._send.queue_choice import LatencyFaults, Pick
from roquet.client._send.topic_routes import TopicRoute, TopicRoutes
from roquet.client.send_result import SendResult, send_results
from roquet.common.loop_time import now_s
from roquet.errors import AccessDenied, CallTimeout, ConnectionClosed, ResponseError
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


class Sender:
    """Sends messages to the masters of their queues, with retries.

    Invariant: all tries of a message with `pick` go to the picked queue. Any other retry goes to a
    broker that has not failed, if there is one.

    :param retries: maximum number of retries after the first try.
    :param avoid_slow_brokers: avoid brokers for a while whose last send was slow or failed.
    """

    def __init__(
        self,
        session: Session,
        routes: TopicRoutes,
        group: str,
        retries: int = 2,
        *,
        avoid_slow_brokers: bool = False,
    ) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._retries = retries
        self._faults = LatencyFaults() if avoid_slow_brokers else None
        self._slots = FifoSemaphore(IN_FLIGHT_MAX)

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
        async with self._slots:
            return await self._send(message, timeout_ms, pick)

    async def _send(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None
    ) -> list[SendResult]:
        deadline = deadline_after(timeout_ms)
        failed: set[str] = set()
        for tries_left in range(self._retries, -1, -1):
            topic_route = await self._routes.get(message.topic, deadline)
            queue = pick(topic_route.queues) if pick else self._next_queue(topic_route, failed)
            try:
                return await self._try(message, queue, topic_route, deadline)
            except (ConnectionClosed, CallTimeout, ResponseError) as error:
                if not _may_try_again(error):
                    raise
                if tries_left == 0 or _left_ms(deadline) <= 0:
                    self._session.routes.refresh_soon(message.topic)
                    raise
                log.info("send failed, will be retried: queue=%s error=%s", queue, error)
                failed.add(queue.broker_name)
                is_alone = pick is not None or all(
                    other.broker_name in failed for other in topic_route.queues
                )
                pause_s = SAME_BROKER_PAUSE_S if is_alone else 0.0
                await self._routes.refresh(message.topic, deadline, pause_s)
                if _left_ms(deadline) <= 0:
                    raise  # a try without time would turn a refusal into CallTimeout
        raise AssertionError("the last try returns or raises")

    def _next_queue(self, topic_route: TopicRoute, failed: set[str]) -> MessageQueue:
        queues = topic_route.queues
        if self._faults is None:
            return topic_route.round_robin.next(queues, failed)
        avoided = failed | self._faults.avoided(now_s() * 1000)
        names = {queue.broker_name for queue in queues}
        if names <= avoided:
            # A slow broker is better than one that failed in this send.
            best = self._faults.least_bad(names - failed or names)
            avoided = names - {best}
        return topic_route.round_robin.next(queues, avoided)

    async def _try(
        self,
        message: EncodedMessage,
        queue: MessageQueue,
        topic_route: TopicRoute,
        deadline: float,
    ) -> list[SendResult]:
        request = message.request(self._group, queue, self._session.runtime.now_ms())
        began_s = now_s()
        try:
            address = topic_route.master(queue)
            response = await self._session.call(address, request, max(1, _left_ms(deadline)))
            results = send_results(
                response, address, message.topic, queue.broker_name, message.unique_keys
            )
        except (ConnectionClosed, CallTimeout, ResponseError) as error:
            self._record_latency(queue, began_s, has_failed=_may_try_again(error))
            raise
        # A cancelled send says nothing about its broker: the application may be in a hurry.
        self._record_latency(queue, began_s)
        return results

    def _record_latency(
        self, queue: MessageQueue, began_s: float, *, has_failed: bool = False
    ) -> None:
        if self._faults is not None:
            now = now_s()
            latency_ms = (now - began_s) * 1000
            self._faults.record_send(
                queue.broker_name, latency_ms, now * 1000, has_failed=has_failed
            )

    async def send_one_way(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None = None
    ) -> None:
        """Send a message one-way: without an answer and without retries.

        :raises RouteNotFound: no broker has the topic, and none would create it.
        :raises ConnectionClosed, CallTimeout: there is no connection to the broker.
        """
        deadline = deadline_after(timeout_ms)
        topic_route = await self._routes.get(message.topic, deadline)
        queue = (pick or topic_route.round_robin.next)(topic_route.queues)
        address = topic_route.master(queue)
        request = message.request(self._group, queue, self._session.runtime.now_ms())
        await self._session.notify(address, request, max(1, _left_ms(deadline)))


def _left_ms(deadline: float) -> int:
    return int((deadline - now_s()) * 1000)


def _may_try_again(error: Exception) -> bool:
    """Whether a send may be retried after `error`.

    AccessDenied is checked first, because its response code is SYSTEM_ERROR.
    """
    if isinstance(error, AccessDenied):
        return False
    return not isinstance(error, ResponseError) or error.code in RETRIED_CODES
