"""Sends an encoded message or batch: chooses a queue, sends to its master, and retries."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from roquet.client._net.session import Session
from roquet.client._net.tasks import deadline_after
from roquet.client._send.encoded_message import EncodedMessage
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client._send.queue_choice import LatencyFaults, Pick
from roquet.client._send.topic_routes import NotWritable, TopicRoute, TopicRoutes
from roquet.client._send.tries import Tries
from roquet.client.counters import UNSORTED_MAX, SendCounters
from roquet.client.send_result import SendResult, SendStatus, send_results
from roquet.common.arguments import check_number
from roquet.common.loop_time import now_s
from roquet.errors import (
    AccessDenied,
    CallTimeout,
    ConnectionClosed,
    ResponseError,
    RoquetError,
    RouteNotFound,
)
from roquet.protocol.records.message import TRANSACTION_PREPARED, MessageQueue
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command

if TYPE_CHECKING:
    from roquet.client.metrics import ProducerMetrics

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
"""Default for the maximum number of sends of one producer that wait for answers of one broker.

256 keep a broker busy. Apache's broker rejects sends that have waited there for 200 ms, so more
would not be faster.
"""
_NONE: Final[Set[str]] = frozenset()

OnSent: TypeAlias = Callable[[EncodedMessage, Command, str, Sequence[SendResult], float], None]
"""Called when a broker has stored a message or a batch, with its answer, its address, the results,
and the time of the event loop at which the try began. It raises nothing."""


@dataclass(frozen=True, slots=True)
class SendRules:
    """How often a producer tries a send, how many sends are under way, which brokers it avoids.

    :param retries: maximum number of retries; None: until the time of the send is over.
    :param max_in_flight: maximum number of sends that wait for answers of one broker; others wait
        for a slot.
    :param avoid_slow_brokers: avoid brokers for a while whose last send was slow or failed.
    :param retries_not_stored: send a message to another broker, too, if the first one has it, but
        not as safely as its settings ask for.
    :raises ConfigError: a number is out of range.
    """

    retries: int | None = None
    max_in_flight: int = IN_FLIGHT_MAX
    avoid_slow_brokers: bool = False
    retries_not_stored: bool = False

    def __post_init__(self) -> None:
        if self.retries is not None:
            check_number("retries", self.retries, 0)
        check_number("max_in_flight", self.max_in_flight, 1)


class Sender:
    """Sends messages to the masters of their queues, with retries.

    Invariant: all tries of a message with `pick` go to the picked queue. Any other retry goes to a
    broker that has not failed, if there is one. If there is none, the send waits and begins anew.
    A send that waits for its next try has no slot, so that it holds up no send of another topic.
    With one slot per broker it keeps that, so that the sends to a broker keep their order.
    """

    def __init__(
        self,
        session: Session,
        routes: TopicRoutes,
        group: str,
        rules: SendRules = SendRules(),
        on_sent: OnSent | None = None,
    ) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._rules = rules
        self._on_sent = on_sent
        self._faults = LatencyFaults() if rules.avoid_slow_brokers else None
        self._slots: defaultdict[str, FifoSemaphore] = defaultdict(
            lambda: FifoSemaphore(rules.max_in_flight)
        )
        """By broker name: a broker that is silent keeps no send to another one waiting."""
        self.counters = SendCounters()

    def metrics(self, group: str) -> ProducerMetrics:
        """The metrics of a producer that sends by this only."""
        from roquet.client.metrics import LatencyHistogram, ProducerMetrics

        counters = self.counters
        counters.sort()
        return ProducerMetrics(
            group,
            counters.sent,
            counters.sent_bytes,
            counters.sent_one_way,
            dict(counters.failures),
            counters.retries,
            LatencyHistogram(tuple(counters.latency_counts), counters.total_ms),
            sum(slots.inside for slots in self._slots.values()),
            sum(slots.waiting for slots in self._slots.values()),
        )

    async def send(
        self, message: EncodedMessage, timeout_ms: int, pick: Pick | None = None
    ) -> list[SendResult]:
        """Send a message or a batch; return one result per message.

        :param timeout_ms: the time in ms for all tries and for the wait before them.
        :param pick: chooses the queue of all tries; None means round robin.
        :raises RouteNotFound: no broker has the topic, and none would create it, until the time is
            over; or it may not be written to.
        :raises ResponseError: a broker refused the message.
        :raises ConnectionClosed: no connection after all tries; the message may be stored.
        :raises CallTimeout: no answer in time, the message may be stored; or it had to wait for
            other sends, and was not sent.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        deadline = began_s + timeout_ms / 1000
        if timeout_ms <= 0:
            raise _over(message, timeout_ms)
        results = await self._send(message, timeout_ms, deadline, pick)
        counters = self.counters
        counters.sent += len(results)
        counters.sent_bytes += len(message.body) - message.overhead
        unsorted_s = counters.unsorted_s
        unsorted_s.append(loop.time() - began_s)
        if len(unsorted_s) >= UNSORTED_MAX:
            counters.sort()
        return results

    async def _send(
        self, message: EncodedMessage, timeout_ms: int, deadline: float, pick: Pick | None
    ) -> list[SendResult]:
        tries: Tries | None = None  # a send that succeeds at once needs none
        held: FifoSemaphore | None = None
        try:
            while True:
                queue: MessageQueue | None = None
                try:
                    topic_route = self._routes.usable(message.topic) or await self._routes.get(
                        message.topic, deadline
                    )
                except (RouteNotFound, ConnectionClosed, CallTimeout) as error:
                    if tries is None and not _may_be_restarting(error):
                        raise
                    tries = tries or Tries(deadline, self._rules.retries)
                    tries.failed(error)
                else:
                    failed = tries.failed_brokers if tries else _NONE
                    queue = (
                        pick(topic_route.queues) if pick else self._next_queue(topic_route, failed)
                    )
                    slots = self._slots[queue.broker_name]
                    if slots is not held:
                        if held is not None:
                            held.leave()
                            held = None
                        if not slots.enter_at_once():
                            if pick is None:
                                queue = self._least_busy(topic_route, queue, failed)
                                slots = self._slots[queue.broker_name]
                            await self._wait(slots, message, timeout_ms, deadline, tries)
                        held = slots
                    try:
                        results = await self._try(message, queue, topic_route, deadline)
                        if pick or not self._may_double(message, results):
                            return results
                        tries = tries or Tries(deadline, self._rules.retries)
                        return await self._try_elsewhere(message, topic_route, results, tries)
                    except (ConnectionClosed, CallTimeout, ResponseError) as error:
                        tries = tries or Tries(deadline, self._rules.retries)
                        tries.failed(error)
                        if not _may_try_again(error):
                            raise tries.take_error() from error.__cause__
                        log.debug("send failed: queue=%s error=%s", queue, error)
                        tries.failed_brokers.add(queue.broker_name)
                is_broker_left = (
                    queue is not None
                    and pick is None
                    and not tries.failed_brokers.issuperset(topic_route.broker_names)
                )
                if held is not None and self._rules.max_in_flight > 1:
                    held.leave()
                    held = None
                await self._before_retry(message.topic, tries, is_broker_left=is_broker_left)
        finally:
            if held is not None:
                held.leave()

    def _may_double(self, message: EncodedMessage, results: Sequence[SendResult]) -> bool:
        """Whether another broker may get the message, too, as this one has it, but not safely."""
        return self._rules.retries_not_stored and not _are_stored(results) and not _is_half(message)

    def _least_busy(
        self, topic_route: TopicRoute, queue: MessageQueue, failed: Set[str]
    ) -> MessageQueue:
        """The next queue of the broker where a send waits least; `queue` if that is its broker.

        A broker that became silent would otherwise get its share of all sends.
        """
        names = topic_route.broker_names
        least = min(
            sorted(names - failed or names),
            key=lambda name: (self._slots[name].waiting, self._slots[name].inside),
        )
        if least == queue.broker_name:
            return queue
        return topic_route.round_robin.next(topic_route.queues, names - {least})

    async def _wait(
        self,
        slots: FifoSemaphore,
        message: EncodedMessage,
        timeout_ms: int,
        deadline: float,
        tries: Tries | None,
    ) -> None:
        """Wait for a slot.

        :raises RoquetError: the time is over; of the last try, or `CallTimeout` if there was none.
        """
        try:
            await slots.enter(deadline)
        except TimeoutError:
            if tries is not None:
                raise tries.take_error() from None
            raise CallTimeout(
                f"the send to topic {message.topic} was not sent: it waited {timeout_ms} ms "
                f"behind other sends, {self._rules.max_in_flight} to a broker are in flight at once"
            ) from None
        if _left_ms(deadline) <= 0:
            slots.leave()
            raise tries.take_error() if tries else _over(message, timeout_ms)

    async def _try_elsewhere(
        self,
        message: EncodedMessage,
        topic_route: TopicRoute,
        results: list[SendResult],
        tries: Tries,
    ) -> list[SendResult]:
        """Send a message to other brokers, once to each, until one stores it safely.

        :param results: what the first broker said: it has the message, but not safely.
        :returns: the results of the broker that was asked last and has the message.
        """
        failed = {*tries.failed_brokers, results[0].queue.broker_name}
        tries.not_stored()
        while tries.may_go_on(now_s()):
            queue = self._next_queue(topic_route, failed)
            if queue.broker_name in failed:
                break
            failed.add(queue.broker_name)
            tries.not_stored()
            self.counters.retries += 1
            try:
                results = await self._try(message, queue, topic_route, tries.deadline)
            except RoquetError as error:  # another broker has the message
                log.debug("send to another broker failed: queue=%s error=%s", queue, error)
            else:
                if _are_stored(results):
                    break
        return results

    async def _before_retry(self, topic: str, tries: Tries, *, is_broker_left: bool) -> None:
        """Wait until it is time for the next try.

        :raises RoquetError: there is no further one; this is the error of the last one.
        """
        if self._session.is_closed:
            raise tries.take_error()
        wait_s = tries.wait_s(now_s(), is_broker_left=is_broker_left)
        if wait_s is None:
            self._session.routes.refresh_soon(topic)
            raise tries.take_error()
        if wait_s:
            await asyncio.sleep(wait_s)
            if self._session.is_closed:
                raise tries.take_error()
        await self._routes.refresh(topic, tries.deadline)
        if _left_ms(tries.deadline) <= 0:
            raise tries.take_error()  # a try without time would turn a refusal into CallTimeout
        self.counters.retries += 1

    def _next_queue(self, topic_route: TopicRoute, failed: Set[str]) -> MessageQueue:
        queues = topic_route.queues
        if self._faults is None:
            return topic_route.round_robin.next(queues, failed)
        avoided = failed | self._faults.avoided(now_s() * 1000)
        names = topic_route.broker_names
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
        request = message.request(
            self._group, queue, self._session.runtime.now_ms(), self._routes.new_topics
        )
        began_s = asyncio.get_running_loop().time()
        try:
            address = topic_route.master(queue)
            left_ms = max(1, int((deadline - began_s) * 1000))
            response = await self._session.call(address, request, left_ms)
            sent_to = self._session.names.plain_queue(queue)
            results = send_results(response, address, sent_to, message.unique_keys)
        except (ConnectionClosed, CallTimeout, ResponseError) as error:
            self._record_latency(queue, began_s, has_failed=_may_try_again(error))
            raise
        # A cancelled send says nothing about its broker: the application may be in a hurry.
        if self._faults is not None:
            self._record_latency(queue, began_s)
        if self._on_sent is not None:
            self._on_sent(message, response, address, results, began_s)
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
        request = message.request(
            self._group, queue, self._session.runtime.now_ms(), self._routes.new_topics
        )
        await self._session.notify(address, request, max(1, _left_ms(deadline)))
        self.counters.sent_one_way += 1


def _may_be_restarting(error: RoquetError) -> bool:
    """Whether a topic may lack a route because its brokers are restarting.

    If they are the only ones, their topics look like those that nobody has created.
    """
    return isinstance(error, RouteNotFound) and not isinstance(error, NotWritable)


def _left_ms(deadline: float) -> int:
    return int((deadline - now_s()) * 1000)


def _over(message: EncodedMessage, timeout_ms: int) -> CallTimeout:
    return CallTimeout(
        f"the send to topic {message.topic} was not sent: its {timeout_ms} ms are over"
    )


def _are_stored(results: Sequence[SendResult]) -> bool:
    """Whether a broker has the messages as safely as its settings ask for."""
    return all(result.status is SendStatus.SEND_OK for result in results)


def _is_half(message: EncodedMessage) -> bool:
    """Whether it belongs to a transaction.

    Of two half messages one would be left open, and a check-back would commit it.
    """
    return bool(message.sys_flag & TRANSACTION_PREPARED)


def _may_try_again(error: Exception) -> bool:
    """Whether a send may be retried after `error`.

    AccessDenied is checked first, because its response code is SYSTEM_ERROR.
    """
    if isinstance(error, AccessDenied):
        return False
    return not isinstance(error, ResponseError) or error.code in RETRIED_CODES
