"""PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361: the slow path, and long polling.

See docs/storage/fetch.md#what-a-fetch-answers, docs/broker/consumers.md#long-polling and
docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delivery.long_polls import LongPolls
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.handlers.fastpath.pull import FastPull, PullTerms
from roquet.broker.metadata.filter_registry import (
    FilterRegistry,
    RetryTopicFilter,
    SqlFilter,
    check_expression_length,
    compile_filter,
    refuse_filter_type,
)
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.metrics.traffic import Traffic
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.offsets.moved_event import OffsetMovedEvents
from roquet.errors import Refused
from roquet.protocol.bodies.tables import BROADCASTING, GroupConfig, Subscription, TopicConfig
from roquet.protocol.filters.tags import (
    EVERYTHING,
    SQL92,
    TAG,
    Filter,
    tag_filter,
)
from roquet.protocol.headers.pull import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullAnswer,
    PullHeader,
)
from roquet.protocol.records.message import RETRY_PREFIX, Permission
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.templates.response import ResponseTemplate
from roquet.storage.fetch import Fetched, FetchStatus
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer

_CODES: Final = {
    FetchStatus.FOUND: ResponseCode.SUCCESS,
    FetchStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
}
"""For the two other statuses (the queue is empty or missing) the code depends on the pull's offset:
at offset 0 there is nothing yet (PULL_NOT_FOUND), any other offset is wrong (PULL_OFFSET_MOVED)."""
_CORRECTS_THE_OFFSET: Final = frozenset(FetchStatus) - {
    FetchStatus.FOUND,
    FetchStatus.NO_MATCHED_MESSAGE,
    FetchStatus.MESSAGE_WAS_REMOVING,
}
"""Statuses whose `next_offset` is not the end of what was fetched, but the nearest valid offset."""
_FETCHES_MAX: Final = 4
"""Further fetches of a woken pull while its filter matches nothing; each reads some hundred
messages."""
COUNT_MAX: Final = 1024
"""Messages in one answer, whatever `maxMsgNums` the client asks for."""
_ANSWER_FIELDS: Final = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")


class PullHandler:
    """Answers pulls, and holds those that find nothing until messages arrive.

    :param offsets: the consumer offsets: a pull may commit one.
    :param moves: reports pulls whose offset the broker moved.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        topics: TopicRegistry,
        groups: GroupRegistry,
        consumers: Consumers[Connection],
        offsets: ConsumerOffsets,
        balance: ReadBalance,
        long_polls: LongPolls,
        filters: FilterRegistry,
        traffic: Traffic,
        moves: OffsetMovedEvents,
    ) -> None:
        self._config = config
        self._is_slave = config.is_slave  # copied: the property takes 0.5 us
        self._is_readable = config.is_readable
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._balance = balance
        self._long_polls = long_polls
        self._filters = filters
        self._traffic = traffic
        self._moves = moves
        self._found = ResponseTemplate(
            ResponseCode.SUCCESS, FetchStatus.FOUND.value, {}, _ANSWER_FIELDS
        )

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def fast_path(self, connection: Connection) -> FastPull:
        """The fast path of a connection's pulls, which `pull` teaches."""
        return FastPull(
            connection,
            self._checked_terms,
            self._commit_and_fetch,
            self._suggested,
            self._found,
            self._traffic,
            self._store.log,
        )

    def pull(self, request: Command, connection: Connection) -> Answer:
        """Answer a pull, or hold it if its queue has nothing new and the client allows it.

        :returns: the answer; None if the pull is held.
        """
        began_ms = self._traffic.clock_ms()
        header = PullHeader.read(request.fields)
        terms = self._checked_terms(header, header.queue_id)
        group, message_filter = terms.group, terms.filter
        fetched = self._commit_and_fetch(
            header, message_filter, header.queue_id, header.queue_offset, header.commit_offset
        )
        code = self._code(fetched, header)
        dispatch = self._store.dispatch
        if code == ResponseCode.PULL_OFFSET_MOVED and dispatch.is_held_up and not self._is_slave:
            # "Offset moved" would send the consumer back to a queue end that is not the real one.
            remark = (
                f"the end of queue {header.queue_id} of topic {header.topic} is not known before "
                f"dispatch goes on: {dispatch.lag_reason}"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if header.sys_flag & SUSPEND and code == ResponseCode.PULL_NOT_FOUND:
            self._hold(request, connection, header, message_filter)
            return None
        if (
            fetched.status is FetchStatus.FOUND
            and not request.is_one_way
            and (fast_pull := connection.fast_paths.get(FastPull)) is not None
        ):
            fast_pull.learn(request, header)
        return self._answer(request, header, group, fetched, began_ms)

    def _checked_terms(self, header: PullHeader, queue_id: int) -> PullTerms:
        """Check a pull with this header from the queue `queue_id`.

        :returns: what it shares with the pulls of other queues.
        :raises Refused: the group may not pull from the queue.
        """
        group = self._group(header.consumer_group)
        topic = self._topic(header.topic, queue_id)
        return PullTerms(group, self._filter(header, group), topic.read_queues)

    def _commit_and_fetch(
        self,
        header: PullHeader,
        message_filter: Filter,
        queue_id: int,
        queue_offset: int,
        commit_offset: int,
    ) -> Fetched:
        """Commit the offset that came with a pull, and fetch.

        The fast path calls this, too. The arguments replace queue and offsets of `header`;
        `_checked_terms` has checked the pull.
        """
        if header.sys_flag & COMMIT_OFFSET and not self._is_slave:
            offset = self._store.within_queue(header.topic, queue_id, commit_offset)
            self._offsets.commit(header.consumer_group, header.topic, queue_id, offset)
        return self._fetch(header, queue_id, queue_offset, message_filter)

    def _fetch(
        self, header: PullHeader, queue_id: int, queue_offset: int, message_filter: Filter
    ) -> Fetched:
        if header.max_msg_nums < 0:
            remark = f"maxMsgNums is {header.max_msg_nums}: it must not be negative"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        count = max(1, min(header.max_msg_nums, COUNT_MAX))
        return self._store.fetch(header.topic, queue_id, queue_offset, count, message_filter)

    # checks

    def _group(self, name: str) -> GroupConfig:
        if not self._is_readable:
            remark = "this broker serves no reads: brokerPermission does not allow them"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.get_or_create(name)
        if not group.consume_enable:
            remark = f"consumer group {name} may not consume: its consumeEnable is false"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return group

    def _topic(self, name: str, queue_id: int) -> TopicConfig:
        topic = self._topics.topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
        if not topic.perm & Permission.READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {name} may not be read")
        if not 0 <= queue_id < topic.read_queues:
            remark = f"topic {name} has no queue {queue_id}: it has {topic.read_queues} read queues"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return topic

    def _filter(self, header: PullHeader, group: GroupConfig) -> Filter:
        """The filter of a pull, from the request itself or from the group's heartbeats."""
        if header.sys_flag & SUBSCRIPTION:
            kind = header.expression_type or TAG
            check_expression_length(header.subscription)
            if kind == TAG:
                return tag_filter(header.subscription)
            return self._filter_of_request(kind, header)
        subscription = self._subscription(header, group)
        if subscription.class_filter:
            return EVERYTHING
        if subscription.is_by_tag:
            return tag_filter(subscription.expression)
        return self._registered_filter(subscription, header)

    def _subscription(self, header: PullHeader, group: GroupConfig) -> Subscription:
        """The group's subscription to the topic, from its heartbeats.

        :raises Refused: it has none, it may not broadcast, or the pull's version is newer.
        """
        subscription = self._consumers.subscription(header.consumer_group, header.topic)
        if subscription is None:
            remark = (
                f"group {header.consumer_group} has no subscription to topic {header.topic} on "
                "this broker: a heartbeat of a member that subscribes to it brings it"
            )
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not group.consume_broadcast_enable and self._is_broadcast(header.consumer_group):
            remark = (
                f"consumer group {header.consumer_group} may not broadcast: "
                "its consumeBroadcastEnable is false"
            )
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if subscription.version < header.sub_version:
            remark = (
                f"the subscription of group {header.consumer_group} to topic {header.topic} on "
                f"this broker is older (version {subscription.version}) than the pull's "
                f"({header.sub_version}): the next heartbeat brings the new one"
            )
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        return subscription

    def _registered_filter(self, subscription: Subscription, header: PullHeader) -> Filter:
        """The filter of a subscription that is not by tag, compiled when its heartbeat came.

        :raises Refused: it does not exist, the pull's version is newer, or such filters are not
            allowed.
        """
        group, topic = header.consumer_group, header.topic
        registered = self._filters.registered(topic, group)
        if registered is None:
            remark = (
                f"this broker has no {subscription.expression_type} filter of group {group} for "
                f"topic {topic}: the answer to the heartbeat says why"
            )
            raise Refused(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        version = registered.data.version
        if version < header.sub_version:
            remark = (
                f"the filter of group {group} for topic {topic} on this broker is older (version "
                f"{version}) than the pull's ({header.sub_version}): the next heartbeat "
                "brings the new one"
            )
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        refuse_filter_type(self._config.filters, subscription.expression_type)
        return self._for_topic(registered.wanted, header)

    def _filter_of_request(self, kind: str, header: PullHeader) -> Filter:
        """The filter of an expression that came with the pull.

        Apache's broker returns all messages if it cannot compile the expression.

        :raises Refused: the expression cannot be compiled, or such filters are not allowed.
        """
        refuse_filter_type(self._config.filters, kind)
        known = self._filters.wanted(header.topic, header.consumer_group)
        if kind == SQL92 and known is not None and known.sql.expression == header.subscription:
            return self._for_topic(known, header)  # extension units may have its filter bits
        sql = compile_filter(kind, header.subscription or "")
        return self._for_topic(SqlFilter(sql), header)

    def _for_topic(self, message_filter: SqlFilter, header: PullHeader) -> Filter:
        if self._config.filters.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            return RetryTopicFilter(self._filters, header.topic.removeprefix(RETRY_PREFIX))
        return message_filter

    def _is_broadcast(self, group: str) -> bool:
        known = self._consumers.groups.get(group)
        return known is not None and known.message_model == BROADCASTING

    # fetching and answering

    def _code(self, fetched: Fetched, header: PullHeader) -> ResponseCode:
        code = _CODES.get(fetched.status)
        if code is None:
            code = (
                ResponseCode.PULL_OFFSET_MOVED
                if header.queue_offset
                else ResponseCode.PULL_NOT_FOUND
            )
        return code

    def _suggested(self, group: GroupConfig, fetched: Fetched) -> int:
        """The broker id to pull from next."""
        return self._balance.next_broker(group, fetched.lag)

    def _answer(
        self,
        request: Command,
        header: PullHeader,
        group: GroupConfig,
        fetched: Fetched,
        began_ms: float,
    ) -> bytes:
        code = self._code(fetched, header)
        next_offset = fetched.next_offset
        suggested = self._suggested(group, fetched)
        if self._is_slave and not self._config.replication.offset_check_in_slave:
            if fetched.status in _CORRECTS_THE_OFFSET:
                next_offset = header.queue_offset
            if code == ResponseCode.PULL_OFFSET_MOVED:
                code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
        self._count(code, header, fetched, began_ms)
        fields = PullAnswer(suggested, next_offset, fetched.min_offset, fetched.max_offset).write()
        return request.answer(
            code, fetched.status.value, fields, b"".join(fetched.records)
        ).encode()

    def _count(
        self, code: ResponseCode, header: PullHeader, fetched: Fetched, began_ms: float
    ) -> None:
        """Count the pull, and report it if its offset was moved; a slave reports nothing."""
        if code == ResponseCode.SUCCESS:
            self._traffic.given(
                header.topic,
                header.consumer_group,
                header.queue_id,
                fetched.count,
                fetched.size,
                began_ms,
            )
            return
        self._traffic.found_nothing()
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._is_slave:
            self._moves.note(header, fetched.next_offset)

    def _hold(
        self, request: Command, connection: Connection, header: PullHeader, message_filter: Filter
    ) -> None:
        config = self._config
        hold_ms = (
            header.suspend_timeout_millis
            if config.long_polling_enable
            else config.short_polling_time_mills
        )
        queue = self._store.queue(header.topic, header.queue_id)
        # The answer needs neither fields nor body; each could hold 16 MiB.
        kept = replace(request, fields={}, body=b"")
        size = len(header.subscription or "") + len(header.consumer_group) + len(header.topic)
        again = self._fetch_again(kept, connection, header, message_filter)
        self._long_polls.hold(connection, queue, header.queue_offset, hold_ms, again, size)

    def _fetch_again(
        self, request: Command, connection: Connection, header: PullHeader, message_filter: Filter
    ) -> Callable[[bool], bytes | None]:
        """The function that fetches again for a held pull: see `HeldPull.fetch_again`.

        An error, such as a topic or group that was deleted meanwhile, becomes the answer to this
        pull, so that the other held pulls are not affected.

        Messages that the filter did not match are not read again, unless the group's subscription
        has changed. After `_FETCHES_MAX` more fetches without a match the client gets the offset
        reached and pulls again, so that one pull does not hold the event loop.
        """
        offset = header.queue_offset

        def fetch_again(is_due: bool) -> bytes | None:
            nonlocal offset, message_filter
            began_ms = self._traffic.clock_ms()
            self._topic(header.topic, header.queue_id)
            group = self._group(header.consumer_group)
            filter_now = (
                message_filter if header.sys_flag & SUBSCRIPTION else self._filter(header, group)
            )
            if filter_now != message_filter:
                message_filter, offset = filter_now, header.queue_offset
            fetched = self._fetch(header, header.queue_id, offset, message_filter)
            for _ in range(_FETCHES_MAX):
                if fetched.status is not FetchStatus.NO_MATCHED_MESSAGE:
                    break
                offset = fetched.next_offset
                fetched = self._fetch(header, header.queue_id, offset, message_filter)
            is_through = fetched.status is not FetchStatus.NO_MATCHED_MESSAGE
            if fetched.status is not FetchStatus.FOUND and is_through and not is_due:
                return None
            if fetched.status is FetchStatus.OFFSET_OVERFLOW_ONE and offset > header.queue_offset:
                fetched = replace(fetched, status=FetchStatus.NO_MATCHED_MESSAGE)
            return self._answer(request, header, group, fetched, began_ms)

        def answer(is_due: bool) -> bytes | None:
            try:
                return fetch_again(is_due)
            except Exception as error:
                return connection.failure(request, error).encode()

        return answer
