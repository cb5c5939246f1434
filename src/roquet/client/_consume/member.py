"""A member of a consumer group: it joins, consumes the queues that it gets, and leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roquet.client._consume.assignment import Assignment
from roquet.client._consume.context import MemberContext
from roquet.client._consume.group_check import warn_of_differences
from roquet.client._consume.offsets import consume_from_where
from roquet.client._consume.order_locks import OrderLocks
from roquet.client._consume.rebalancer import LOOK_PERIOD_S, Rebalancer
from roquet.client._consume.statistics import SAMPLE_PERIOD_S
from roquet.client._consume.subscription_changes import MATCH_PERIOD_S, SubscriptionChanges
from roquet.client._net.broker_requests import MemberCallbacks
from roquet.client._net.tasks import Tasks, each_in_turn, every
from roquet.client.received import MessageSource
from roquet.common.loop_time import now_s
from roquet.protocol.bodies.tables import BROADCASTING, CLUSTERING, ConsumerData
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record

if TYPE_CHECKING:
    from roquet.client.metrics import ConsumerMetrics

LOCKS_CHECK_S: Final = 1.0


class Member:
    """A member of a consumer group: pulls the queues that it gets into a prefetch buffer."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._session = context.session
        is_locking = context.ordered and not context.broadcast
        self._locks = OrderLocks(context.session, context.group) if is_locking else None
        self.assignment = Assignment(context, self._locks)
        self._rebalancer = Rebalancer(context, self.assignment)
        self._tasks = Tasks()
        self.subscriptions = SubscriptionChanges(context, self._rebalancer, self._tasks)
        self._has_joined = False
        self._started_ms = 0

    async def join(self) -> None:
        """Send a heartbeat, then rebalance. Raises as `Consumer.start`.

        Without the heartbeat the brokers' lists of members would lack this one, and it would get
        no queue (docs/pitfalls.md#trap-60).
        """
        self._started_ms = self._session.runtime.now_ms()
        await self._context.offsets.open()
        await self.subscriptions.prepare()
        data = ConsumerData(
            self._context.group,
            message_model=BROADCASTING if self._context.broadcast else CLUSTERING,
            consume_from=consume_from_where(self._context.start),
            subscriptions=tuple(self._context.subscriptions.values()),
            unit_mode=self._session.unit_mode,
        )
        member = MemberCallbacks(
            data,
            self._wake,
            self._rebalancer.reset,
            self.assignment.states,
            self._deliver_directly,
            self._properties,
            self._context.ordered,
            self._consume_status,
        )
        await warn_of_differences(self._session, data, self.subscriptions.is_by_pattern)
        self._session.membership.join_as_consumer(self._context.group, member)
        self._has_joined = True
        self.subscriptions.can_change = True
        for denial in await self._session.membership.beat():
            raise denial  # otherwise the application would wait forever for messages
        await self._rebalancer.rebalance()
        self._start_work()

    async def _deliver_directly(self, record: Record, broker_name: str) -> bool:
        """Deliver a message that an administrator sent; return whether it was acknowledged."""
        limit, names = self._context.uncompressed_max, self._session.names
        source = MessageSource(broker_name, None, limit, names)
        return await self._context.prefetch.deliver_directly(record, source)

    def _start_work(self) -> None:
        """Start what is done again and again until this member leaves."""
        group = self._context.group
        self._tasks.start(self._rebalancer.run(), f"rebalance of {group}")
        look = every(LOOK_PERIOD_S, self._rebalancer.look_for_topics, "looking for topics")
        self._tasks.start(look, f"topics of {group}")
        if self._context.patterns:
            match = every(MATCH_PERIOD_S, self.subscriptions.follow_patterns, "matching topics")
            self._tasks.start(match, f"patterns of {group}")
        store_period_s = self._context.persist_offsets_ms / 1000
        store = every(store_period_s, self.assignment.store_offsets, "storing offsets")
        self._tasks.start(store, f"offsets of {group}")
        samples = every(SAMPLE_PERIOD_S, self._sample, "sampling statistics")
        self._tasks.start(samples, f"statistics of {group}")
        if self._locks is not None:
            self._tasks.start(self._locks.keep(), f"locks of {group}")
            lost = every(
                LOCKS_CHECK_S, self._rebalancer.drop_unlocked, "dropping queues without lock"
            )
            self._tasks.start(lost, f"lost locks of {group}")

    def metrics(self, in_progress: int) -> ConsumerMetrics:
        """The metrics of this member.

        :param in_progress: messages that the application has now.
        """
        from roquet.client.metrics import ConsumerMetrics

        names = self._session.names
        topics = self._context.statistics.metrics()
        queues = self.assignment.metrics()
        return ConsumerMetrics(
            names.plain(self._context.group),
            {names.plain(topic): each for topic, each in topics.items()},
            self._rebalancer.changes,
            in_progress,
            {names.plain_queue(queue): each for queue, each in queues.items()},
        )

    def _consume_status(self) -> dict[str, dict[str, Any]]:
        """Rates of each topic of the group, for administrators."""
        return {
            topic: self._context.statistics.consume_status(topic, now_s())
            for topic in self._context.subscriptions
        }

    async def _sample(self) -> None:
        self._context.statistics.sample(now_s())

    def _properties(self) -> dict[str, str]:
        """What administrators see of the settings, by the names of Java's consumer."""
        context = self._context
        totals = context.limits
        limits = totals.of_queue(len(self.assignment.queues()))
        return {
            "PROP_CONSUMEORDERLY": "true" if context.ordered else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_NAMESERVER_ADDR": "".join(
                f"{address};" for address in self._session.name_servers.addresses
            ),
            "allocateMessageQueueStrategy": context.strategy.name,
            "consumeConcurrentlyMaxSpan": str(limits.span_max),
            "pullBatchSize": str(context.batch_size),
            "pullInterval": str(context.pull_interval_ms),
            "pullThresholdForQueue": str(limits.count_max),
            "pullThresholdForTopic": str(totals.total_count_max or -1),
            "pullThresholdSizeForQueue": str(limits.size_max >> 20),
            "pullThresholdSizeForTopic": (
                "-1" if totals.total_size_max is None else str(totals.total_size_max >> 20)
            ),
        }

    async def leave(self) -> None:
        """Stop pulling, store the offsets, and leave the group.

        In this order, because the other members take over the queues as soon as this member left
        (docs/protocol/consuming.md#leaving).
        """
        self.subscriptions.can_change = False
        await each_in_turn(self._tasks.close, self.assignment.close, self._unregister)

    async def _unregister(self) -> None:
        if self._has_joined:
            await self._session.membership.leave_as_consumer(self._context.group)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group in a queue, or None."""
        return await self._context.offsets.load(queue)

    def _wake(self) -> None:
        """Rebalance soon: the members of the group or the brokers changed."""
        self._rebalancer.due.set()
        if self._locks is not None:
            self._locks.due.set()
