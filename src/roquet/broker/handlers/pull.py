"""PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361.

See docs/storage/fetch.md#what-a-fetch-answers, docs/broker/consumers.md#long-polling and
docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from roquet.broker.delivery.long_polls import LongPolls
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.handlers.fastpath.pull import FastPull, PullTerms
from roquet.broker.metadata.filter_data import (
    FilterRegistry,
    RetrySubscription,
    SqlSubscription,
    compiled,
)
from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.metadata import Metadata
from roquet.broker.metrics.traffic import Traffic
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.offsets.moved_event import OffsetMovedEvents
from roquet.errors import FilterError, Refused
from roquet.protocol.bodies.tables import BROADCASTING, GroupConfig, Subscription, TopicConfig
from roquet.protocol.filters.tags import (
    EVERYTHING,
    EXPRESSION_SIZE_MAX,
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
from roquet.transport.connection import Answer, Connection, Handler

_CODES: Final = {
    FetchStatus.FOUND: ResponseCode.SUCCESS,
    FetchStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
}
"""The two others depend on the offset: 0 has nothing yet, any other one is wrong."""
_CORRECTS_THE_OFFSET: Final = frozenset(FetchStatus) - {
    FetchStatus.FOUND,
    FetchStatus.NO_MATCHED_MESSAGE,
    FetchStatus.MESSAGE_WAS_REMOVING,
}
_FETCHES_MAX: Final = 4
"""So many times in a row a held pull looks for what it wants; each looks at some hundred messages."""
COUNT_MAX: Final = 1024
_ANSWER_FIELDS: Final = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")


@dataclass(frozen=True, slots=True)
class PullConfig:
    """What pulls depend on beside topics and groups; times in ms."""

    is_slave: bool = False
    is_readable: bool = True
    long_polling: bool = True
    short_polling_ms: int = 1000
    offset_check_in_slave: bool = False
    filter_by_properties: bool = False
    filter_retries: bool = False


class PullHandler:
    """Gives messages out."""

    def __init__(
        self,
        config: PullConfig,
        store: Store,
        metadata: Metadata,
        consumers: Consumers[Connection],
        progress: ConsumerOffsets,
        balance: ReadBalance,
        long_polls: LongPolls,
        filters: FilterRegistry,
        traffic: Traffic,
        moves: OffsetMovedEvents,
    ) -> None:
        self._config = config
        self._store = store
        self._metadata = metadata
        self._consumers = consumers
        self._progress = progress
        self._balance = balance
        self._long_polls = long_polls
        self._filters = filters
        self._traffic = traffic
        self._moves = moves
        self._found = ResponseTemplate(
            ResponseCode.SUCCESS, FetchStatus.FOUND.value, {}, _ANSWER_FIELDS
        )

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, request: Command, connection: Connection) -> Answer:
        began_ms, header = self._traffic.clock_ms(), PullHeader.read(request.fields)
        terms = self._terms(header, header.queue_id)
        group, wanted = terms.group, terms.wanted
        fetched = self._look(
            header, wanted, header.queue_id, header.queue_offset, header.commit_offset
        )
        code, dispatch = self._code(fetched, header), self._store.dispatch
        if (
            code == ResponseCode.PULL_OFFSET_MOVED
            and dispatch.is_held_up
            and not self._config.is_slave
        ):
            remark = f"nobody knows where queue {header.queue_id} of {header.topic} ends: {dispatch.why_behind}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if header.sys_flag & SUSPEND and code == ResponseCode.PULL_NOT_FOUND:
            self._hold(request, connection, header, wanted)
            return None
        if fetched.status is FetchStatus.FOUND and not request.is_one_way:
            self._learn(request, connection, header)
        return self._answer(request, header, group, fetched, began_ms)

    def _terms(self, header: PullHeader, queue_id: int) -> PullTerms:
        """What counts for a pull that is like `header` but for its queue.

        :raises Refused: it may not be pulled.
        """
        group = self._group(header.consumer_group)
        topic = self._topic(header.topic, queue_id)
        return PullTerms(group, self._wanted(header, group), topic.read_queues)

    def _look(
        self,
        header: PullHeader,
        wanted: Filter,
        queue_id: int,
        queue_offset: int,
        commit_offset: int,
    ) -> Fetched:
        """What a pull finds that is like `header` but for its queue and offsets, and may be pulled."""
        if header.sys_flag & COMMIT_OFFSET and not self._config.is_slave:
            offset = self._store.within_queue(header.topic, queue_id, commit_offset)
            self._progress.commit(header.consumer_group, header.topic, queue_id, offset)
        return self._fetch(header, queue_id, queue_offset, wanted)

    def _fetch(
        self, header: PullHeader, queue_id: int, queue_offset: int, wanted: Filter
    ) -> Fetched:
        if header.max_msg_nums < 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"maxMsgNums is {header.max_msg_nums}")
        count = max(1, min(header.max_msg_nums, COUNT_MAX))
        return self._store.fetch(header.topic, queue_id, queue_offset, count, wanted)

    def _learn(self, request: Command, connection: Connection, header: PullHeader) -> None:
        """Let the connection's next pulls of this kind go the short way."""
        known = next(
            (known for known in connection.fast_paths if isinstance(known, FastPull)), None
        )
        if known is None:
            known = FastPull(
                connection,
                self._terms,
                self._look,
                self._suggested,
                self._found,
                self._traffic,
                self._store.log,
            )
            connection.fast_paths.append(known)
        known.learn(request, header)

    # may it be pulled?

    def _group(self, name: str) -> GroupConfig:
        if not self._config.is_readable:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker may not be read from")
        group = self._metadata.group(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist"
            )
        if not group.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"consumer group {name} may not consume")
        return group

    def _topic(self, name: str, queue_id: int) -> TopicConfig:
        topic = self._metadata.topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
        if not topic.perm & Permission.READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {name} may not be read")
        if not 0 <= queue_id < topic.read_queues:
            remark = f"queue {queue_id} of topic {name}, which has {topic.read_queues} read queues"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return topic

    def _wanted(self, header: PullHeader, group: GroupConfig) -> Filter:
        """What to filter by, from the request itself or from the group's heartbeats."""
        if header.sys_flag & SUBSCRIPTION:
            kind = header.expression_type or TAG
            check_length(header.subscription)
            return (
                tag_filter(header.subscription)
                if kind == TAG
                else self._sql_of_request(kind, header)
            )
        subscription = self._subscription(header, group)
        if subscription.class_filter:
            return EVERYTHING
        return (
            tag_filter(subscription.expression)
            if subscription.is_by_tag
            else self._sql_of(subscription, header)
        )

    def _subscription(self, header: PullHeader, group: GroupConfig) -> Subscription:
        """What the group's heartbeats say."""
        subscription = self._consumers.subscription(header.consumer_group, header.topic)
        if subscription is None:
            remark = f"group {header.consumer_group} has not subscribed to {header.topic} on this broker yet"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not group.consume_broadcast_enable and self._is_broadcast(header.consumer_group):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"group {header.consumer_group} may not broadcast"
            )
        if subscription.version < header.sub_version:
            remark = f"this broker knows an older subscription of {header.consumer_group} to {header.topic}"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        return subscription

    def _sql_of(self, subscription: Subscription, header: PullHeader) -> Filter:
        """The filter that came with a heartbeat, compiled then."""
        group, topic = header.consumer_group, header.topic
        data, wanted = self._filters.data(topic, group), self._filters.wanted(topic, group)
        if data is None or wanted is None:
            remark = f"no {subscription.expression_type} filter of {group} for {topic} is known: its heartbeat says why"
            raise Refused(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if data.version < header.sub_version:
            remark = f"this broker knows an older filter of {group} for {topic}"
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        self._check_filters_allowed(subscription.expression_type)
        return self._filtering(wanted, header)

    def _sql_of_request(self, kind: str, header: PullHeader) -> Filter:
        """Apache's broker gives everything out where it cannot compile what the request brings."""
        self._check_filters_allowed(kind)
        known = self._filters.wanted(header.topic, header.consumer_group)
        if kind == SQL92 and known is not None and known.sql.expression == header.subscription:
            return self._filtering(known, header)  # queue entries may have notes of it
        try:
            sql = compiled(kind, header.subscription or "")
        except FilterError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return self._filtering(SqlSubscription(sql), header)

    def _check_filters_allowed(self, kind: str) -> None:
        if not self._config.filter_by_properties:
            raise Refused(ResponseCode.SYSTEM_ERROR, not_allowed(kind))

    def _filtering(self, wanted: SqlSubscription, header: PullHeader) -> Filter:
        if self._config.filter_retries and header.topic.startswith(RETRY_PREFIX):
            return RetrySubscription(self._filters, header.topic.removeprefix(RETRY_PREFIX))
        return wanted

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
        """The broker to pull from next."""
        return self._balance.next_broker(group, fetched.behind)

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
        if self._config.is_slave and not self._config.offset_check_in_slave:
            if fetched.status in _CORRECTS_THE_OFFSET:
                next_offset = header.queue_offset
            if code == ResponseCode.PULL_OFFSET_MOVED:
                code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
        self._note(code, header, fetched, began_ms)
        fields = PullAnswer(suggested, next_offset, fetched.min_offset, fetched.max_offset).write()
        return request.answer(
            code, fetched.status.value, fields, b"".join(fetched.records)
        ).encode()

    def _note(
        self, code: ResponseCode, header: PullHeader, fetched: Fetched, began_ms: float
    ) -> None:
        """Count it, and write down if it is sent elsewhere; a slave writes nothing."""
        if code == ResponseCode.SUCCESS:
            size, traffic = fetched.size, self._traffic
            traffic.given(
                header.topic, header.consumer_group, header.queue_id, fetched.count, size, began_ms
            )
            return
        self._traffic.missed += 1
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._config.is_slave:
            self._moves.note(header, fetched.next_offset)

    def _hold(
        self, request: Command, connection: Connection, header: PullHeader, wanted: Filter
    ) -> None:
        config = self._config
        hold_ms = header.suspend_timeout_millis if config.long_polling else config.short_polling_ms
        queue = self._store.queue(header.topic, header.queue_id)
        kept = replace(request, fields={}, body=b"")  # to answer it; either could be 16 MiB
        size = len(header.subscription or "") + len(header.consumer_group) + len(header.topic)
        again = self._again(kept, connection, header, wanted)
        self._long_polls.hold(connection, queue, header.queue_offset, hold_ms, again, size)

    def _again(
        self, request: Command, connection: Connection, header: PullHeader, wanted: Filter
    ) -> Callable[[bool], bytes | None]:
        """What a held pull does when it is looked at again; a topic or group that is gone by then ends it, and so does
        any error: it is the answer to this pull, and the others are looked at.

        What was looked at once and is not wanted is passed over the next time, unless the group wants something else by
        then. Where there is much of that, the client is told how far it is, and asks again: others want to be served.
        """
        offset = header.queue_offset

        def fetch_again(is_due: bool) -> bytes | None:
            nonlocal offset, wanted
            began_ms = self._traffic.clock_ms()
            self._topic(header.topic, header.queue_id)
            group = self._group(header.consumer_group)
            wanted_now = wanted if header.sys_flag & SUBSCRIPTION else self._wanted(header, group)
            if wanted_now != wanted:
                wanted, offset = wanted_now, header.queue_offset
            fetched = self._fetch(header, header.queue_id, offset, wanted)
            for _ in range(_FETCHES_MAX):
                if fetched.status is not FetchStatus.NO_MATCHED_MESSAGE:
                    break
                offset = fetched.next_offset
                fetched = self._fetch(header, header.queue_id, offset, wanted)
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


def check_length(expression: str | None) -> None:
    """:raises Refused: it is longer than any that is wanted; each is kept for the pulls that bring it again."""
    if expression is not None and len(expression) > EXPRESSION_SIZE_MAX:
        remark = f"an expression of {len(expression)} characters, allowed are {EXPRESSION_SIZE_MAX}"
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)


def not_allowed(kind: str) -> str:
    """What is said to who wants to filter otherwise than by tags."""
    return f"this broker does not filter by {kind}; enablePropertyFilter=true in its configuration allows it"
