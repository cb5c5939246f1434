"""Members of groups: HEART_BEAT 34, UNREGISTER_CLIENT 35, GET_CONSUMER_LIST_BY_GROUP 38.

Also CHECK_CLIENT_CONFIG 46, by which a client asks whether the broker can serve a subscription.

See docs/protocol/consuming.md#heartbeats, docs/protocol/request-codes.md#brokers-to-clients and
docs/pitfalls.md (traps 25 to 28 and 37).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.limits import refuse_beyond
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.metadata.filter_registry import (
    FilterRegistry,
    check_expression_length,
    compile_filter,
    refuse_filter_type,
)
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.members import ConnectedClient, Consumers, Producers
from roquet.broker.metadata.topics import TopicRegistry
from roquet.common.limited_log import LimitedLog
from roquet.common.runtime import Runtime
from roquet.common.steps import Steps, in_parts
from roquet.errors import FilterError, Refused
from roquet.protocol.bodies.tables import (
    UNIT_SUBSCRIPTION,
    ConsumerData,
    Heartbeat,
    Subscription,
    parse_request,
)
from roquet.protocol.headers.members import ConsumerGroupHeader, UnregisterClientHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

_NAME_SIZE_MAX: Final = 1024
"""Characters of a client id, group or topic; legal group and topic names have at most 255."""
_NOTIFIED_AT_ONCE: Final = 64
"""Members that are notified in one turn of the event loop; this takes 1 ms."""
_SQL_SIZE_MAX: Final = 32 * 1024
"""Characters of all SQL92 expressions in a heartbeat; compiling takes 1 us per character."""


class MemberHandler:
    """Updates the member tables on heartbeats, unregistrations and closed connections.

    Invariant: a consumer is registered, and the members of its group notified unless there are
    more than `_NOTIFIED_AT_ONCE`, before its heartbeat is answered: its first pull may follow at
    once.
    `_to_notify` has the members of large groups that are still to be notified.

    :param now_ms: the wall clock, by which filters are dated.
    :param clock_ms: a monotonic clock, by which silent clients are found.
    :param store: its newest message's store time may be ahead of the wall clock.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        topics: TopicRegistry,
        groups: GroupRegistry,
        consumers: Consumers[Connection],
        producers: Producers[Connection],
        filters: FilterRegistry,
        runtime: Runtime,
    ) -> None:
        self.notifies = config.notify_consumer_ids_changed_enable
        """Whether members of groups are notified of others that join or leave."""
        self._config = config
        self._limits = config.limits
        self._limited_log = LimitedLog(log)
        self._to_notify: dict[str, list[Connection]] = {}
        self._to_notify_again: dict[str, None] = {}
        self._notifying = EndOfTurn(self._notify_some)
        self._consumers = consumers
        self._producers = producers
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self._runtime = runtime
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client,
        }

    def heartbeat(self, request: Command, connection: Connection) -> Command:
        """Register the client in all its groups.

        If the filter of a subscription cannot be used, the heartbeat is refused, but all its groups
        are registered. A heartbeat beyond a limit is refused without registering any group.
        """
        heartbeat = parse_request(
            request.body, Heartbeat.from_json, self._limits.json_body_size_max, "jsonBodySizeMax"
        )
        self._refuse_beyond_limits(heartbeat, connection)
        client = ConnectedClient(
            heartbeat.client_id,
            request.language,
            request.version,
            connection.peer_address,
            self._runtime.steady_ms(),
        )
        for group in heartbeat.producers:
            self._producers.register(connection, client, group)
        wrong = [
            error
            for data in heartbeat.consumers
            for error in self._take_consumer(connection, client, data)
        ]
        if wrong:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "; ".join(map(str, wrong)))
        return request.answer(ResponseCode.SUCCESS)

    def _refuse_beyond_limits(self, heartbeat: Heartbeat, connection: Connection) -> None:
        limits = self._limits
        consumers = heartbeat.consumers
        names = [heartbeat.client_id, *heartbeat.producers, *(data.group for data in consumers)]
        names += [subscription.topic for data in consumers for subscription in data.subscriptions]
        longest = max(names, key=len)
        if len(longest) > _NAME_SIZE_MAX:
            remark = (
                f"a name in the heartbeat has {len(longest)} characters, "
                f"allowed are {_NAME_SIZE_MAX}: {longest[:40]}..."
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        expressions = [subscription for data in consumers for subscription in data.subscriptions]
        for subscription in expressions:
            if subscription.is_by_tag:
                check_expression_length(subscription.expression)
        size = sum(
            len(subscription.expression)
            for subscription in expressions
            if not subscription.is_by_tag
        )
        if size > _SQL_SIZE_MAX:
            remark = (
                f"the SQL92 expressions in the heartbeat have {size} characters, "
                f"allowed are {_SQL_SIZE_MAX}"
            )
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        for data in consumers:
            what = f"subscriptions of group {data.group}"
            refuse_beyond(
                len(data.subscriptions), limits.subscription_nums_max, what, "subscriptionNumsMax"
            )
        what = "subscriptions of all members"
        if consumers:  # a client that only sends is not refused for consumers' subscriptions
            count = self._consumers.count_with(connection, consumers)
            refuse_beyond(
                count, limits.member_subscription_nums_max, what, "memberSubscriptionNumsMax"
            )
        if heartbeat.producers:
            count = self._producers.count_with(connection, heartbeat.producers)
            refuse_beyond(
                count,
                limits.member_subscription_nums_max,
                "groups of all producers",
                "memberSubscriptionNumsMax",
            )
        self._refuse_full(self._consumers, [data.group for data in consumers], connection)
        self._refuse_full(self._producers, heartbeat.producers, connection)

    def _refuse_full(
        self,
        registry: Consumers[Connection] | Producers[Connection],
        groups: Sequence[str],
        connection: Connection,
    ) -> None:
        limits = self._limits
        count = len(registry.groups_of(connection).union(groups))
        refuse_beyond(
            count, limits.client_group_nums_max, "groups of this client", "clientGroupNumsMax"
        )
        for group in groups:
            if not registry.has_room(connection, group, limits.member_nums_max):
                remark = (
                    f"group {group} has {limits.member_nums_max} members already (memberNumsMax)"
                )
                raise Refused(ResponseCode.SYSTEM_ERROR, remark)

    def _take_consumer(
        self, connection: Connection, member: ConnectedClient, data: ConsumerData
    ) -> list[FilterError]:
        """Register a consumer, even if its group may not be created.

        :returns: the errors in its filters.
        """
        try:
            group = self._groups.get_or_create(data.group)
        except Refused:
            pass  # the pulls of this consumer are refused
        else:
            self._topics.retry_topic(group, UNIT_SUBSCRIPTION if data.unit_mode else 0)
        is_changed = self._consumers.register(connection, member, data)
        disagreement = self._consumers.disagreement(connection, data)
        if disagreement:
            self._limited_log.warning(
                f"disagree {connection.peer_host_name}",
                "members of a group have different subscriptions, the last heartbeat's are used: "
                "group=%.200s peer=%s difference=%s",
                data.group,
                connection.peer_address,
                disagreement,
            )
        wrong = self._filters.register(
            data.group, data.subscriptions, max(self._runtime.now_ms(), self._store.newest_ms)
        )
        if is_changed:
            self._notify_members(data.group)
        return wrong

    def _notify_members(self, group_name: str) -> None:
        """Notify the members of a group that its members changed.

        Members that do not read are skipped: all clients rebalance every 20 s anyway.
        """
        group = self._groups.groups.get(group_name)
        if not self.notifies:
            return
        if group is not None and not group.notify_consumer_ids_changed_enable:
            return
        if group_name in self._to_notify:
            self._to_notify_again[group_name] = None
            return
        channels = self._consumers.channels(group_name)
        if len(channels) <= _NOTIFIED_AT_ONCE:
            _notify(group_name, channels)
        else:
            self._to_notify[group_name] = channels
            self._notifying.due()

    def _notify_some(self) -> None:
        """Notify `_NOTIFIED_AT_ONCE` members of one large group, and schedule the rest.

        All changes meanwhile lead to one more round: when 2,000 members join at the same time, each
        of them need not be notified of each.
        """
        group_name, channels = self._to_notify.popitem()
        part, rest = channels[-_NOTIFIED_AT_ONCE:], channels[:-_NOTIFIED_AT_ONCE]
        _notify(group_name, part)
        if not rest and group_name in self._to_notify_again:
            del self._to_notify_again[group_name]
            rest = self._consumers.channels(group_name)
        if rest:
            self._to_notify[group_name] = rest
        if self._to_notify:
            self._notifying.due()

    def unregister(self, request: Command, connection: Connection) -> Command:
        header = UnregisterClientHeader.read(request.fields)
        if header.producer_group:
            self._producers.unregister(connection, header.producer_group)
        if header.consumer_group and self._consumers.unregister(connection, header.consumer_group):
            self._member_left(header.consumer_group)
        return request.answer(ResponseCode.SUCCESS)

    def connection_closed(self, connection: Connection) -> None:
        """Remove the members of a closed connection."""
        self._producers.closed(connection)
        for group in self._consumers.closed(connection):
            self._member_left(group)

    def _member_left(self, group: str) -> None:
        """Notify a group that lost a member; if it was the last one, retire the group's filters."""
        if group not in self._consumers.groups:
            self._filters.unregister(group, self._runtime.now_ms())
        self._notify_members(group)

    def close_silent(self) -> Steps[None]:
        """Close the connections of members without a heartbeat for too long, which removes them."""
        now_ms = self._runtime.steady_ms()
        for connections in chain(self._consumers.silent(now_ms), self._producers.silent(now_ms)):
            for part in in_parts(connections):
                for connection in part:
                    connection.end()
                yield
            if not connections:
                yield

    def consumer_ids(self, request: Command, _: Connection) -> Command:
        group = ConsumerGroupHeader.read(request.fields).consumer_group
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes({"consumerIdList": client_ids}))

    def check_client(self, request: Command, _: Connection) -> Command:
        """Check whether this broker can serve a subscription; it can serve every tag expression.

        :raises Refused: it cannot.
        """
        subscription = parse_request(
            request.body, _subscription, self._limits.json_body_size_max, "jsonBodySizeMax"
        )
        if subscription is not None and not subscription.is_by_tag:
            refuse_filter_type(self._config.filters, subscription.expression_type)
            compile_filter(subscription.expression_type, subscription.expression)
        return request.answer(ResponseCode.SUCCESS)


def _notify(group_name: str, channels: Iterable[Connection]) -> None:
    fields = ConsumerGroupHeader(group_name).write()
    for channel in channels:
        if not channel.is_writable:
            continue
        channel.calls.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))


def _subscription(json: Mapping[str, Any]) -> Subscription | None:
    """The subscription in the body of CHECK_CLIENT_CONFIG, if there is one."""
    found = json.get("subscriptionData")
    return Subscription.from_json(found) if found else None
