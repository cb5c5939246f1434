"""Who is connected: HEART_BEAT 34, UNREGISTER_CLIENT 35, GET_CONSUMER_LIST_BY_GROUP 38, CHECK_CLIENT_CONFIG 46.

Protocol.md 2.2, 2.3 and 7.3 (traps 25 to 28, 37).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from roquet.broker.catalogue import Catalogue
from roquet.broker.filter_data import FilterRegistry, compiled
from roquet.broker.handlers.pull import not_allowed
from roquet.broker.members import Consumers, Member, Producers
from roquet.errors import FilterError, Refused
from roquet.protocol.bodies import ConsumerData, Heartbeat, Subscription, parse
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.members import ConsumerGroupHeader, UnregisterClientHeader
from roquet.protocol.json_dialect import dump_bytes
from roquet.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

UNIT_SUBSCRIPTION: Final = 2
"""Bit of a retry topic's sysFlag: its group consumes units."""


class MemberRequests:
    """Keeps the tables of members in step with heartbeats, farewells and connections that end.

    Keeps: a consumer is registered, and its group told, before its heartbeat is answered; its first pull may follow
           at once.

    :param now_ms: wall clock, which filters are dated by; `clock_ms` is one that nobody sets, for who is silent.
    :param newest_ms: the newest message's store time, which may be ahead of the clock.
    :param filter_by_properties: whether subscriptions other than tag expressions are served.
    :param notify: whether groups are told that their members changed.
    """

    def __init__(
        self,
        consumers: Consumers[Connection],
        producers: Producers[Connection],
        catalogue: Catalogue,
        filters: FilterRegistry,
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
        newest_ms: Callable[[], int],
        *,
        filter_by_properties: bool = False,
        notify: bool = True,
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._catalogue = catalogue
        self._filters = filters
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._newest_ms = newest_ms
        self._filter_by_properties = filter_by_properties
        self._notify = notify

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client,
        }

    def heartbeat(self, request: Command, connection: Connection) -> Command:
        """Everybody in it is registered, also where a filter of one cannot be used and it is refused for that."""
        heartbeat = parse(request.body, Heartbeat.from_json)
        address, seen_ms = connection.peer_address, self._clock_ms()
        member = Member(heartbeat.client_id, request.language, request.version, address, seen_ms)
        for group in heartbeat.producers:
            self._producers.register(connection, member, group)
        wrong = [error for data in heartbeat.consumers for error in self._take_consumer(connection, member, data)]
        if wrong:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "; ".join(map(str, wrong)))
        return request.answer(ResponseCode.SUCCESS)

    def _take_consumer(self, connection: Connection, member: Member, data: ConsumerData) -> list[FilterError]:
        """A group that may not be made is registered nevertheless; its pulls are what is refused.

        :return: what is wrong with its filters.
        """
        group = self._catalogue.group(data.group)
        if group is not None:
            self._catalogue.retry_topic(group, UNIT_SUBSCRIPTION if data.unit_mode else 0)
        is_news = self._consumers.register(connection, member, data)
        disagreement = self._consumers.disagreement(connection, data)
        if disagreement:
            log.warning("members of group %s disagree, what the last one wants counts: %s", data.group, disagreement)
        wrong = self._filters.register(data.group, data.subscriptions, max(self._now_ms(), self._newest_ms()))
        if is_news:
            self._tell(data.group)
        return wrong

    def _tell(self, group_name: str) -> None:
        """Say to all members of a group that it changed, but for those that do not read: they look for themselves, too,
        as all clients do every 20 s.
        """
        group = self._catalogue.groups.get(group_name)
        if not self._notify or (group is not None and not group.notify_consumer_ids_changed_enable):
            return
        fields = ConsumerGroupHeader(group_name).write()
        for channel in self._consumers.channels(group_name):
            if not channel.is_writable:
                continue
            channel.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))

    def unregister(self, request: Command, connection: Connection) -> Command:
        header = UnregisterClientHeader.read(request.fields)
        if header.producer_group:
            self._producers.unregister(connection, header.producer_group)
        if header.consumer_group and self._consumers.unregister(connection, header.consumer_group):
            self._left(header.consumer_group)
        return request.answer(ResponseCode.SUCCESS)

    def connection_closed(self, connection: Connection) -> None:
        """Whoever spoke over this connection left."""
        self._producers.closed(connection)
        for group in self._consumers.closed(connection):
            self._left(group)

    def _left(self, group: str) -> None:
        """A group has lost a member, maybe its last one."""
        if group not in self._consumers.groups:
            self._filters.unregister(group, self._now_ms())
        self._tell(group)

    def close_silent(self) -> None:
        """Close the connections of members that were not heard of for too long; their end takes them out."""
        now_ms = self._clock_ms()
        for connection in (*self._consumers.silent(now_ms), *self._producers.silent(now_ms)):
            connection.end()

    def consumer_ids(self, request: Command, connection: Connection) -> Command:
        group = ConsumerGroupHeader.read(request.fields).consumer_group
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes({"consumerIdList": client_ids}))

    def check_client(self, request: Command, connection: Connection) -> Command:
        """Whether this broker can serve a subscription; tag expressions always."""
        subscription = parse(request.body, _subscription)
        if subscription is not None and not subscription.is_by_tag:
            self._check_filter(subscription)
        return request.answer(ResponseCode.SUCCESS)

    def _check_filter(self, subscription: Subscription) -> None:
        if not self._filter_by_properties:
            raise Refused(ResponseCode.SYSTEM_ERROR, not_allowed(subscription.expression_type))
        try:
            compiled(subscription.expression_type, subscription.expression)
        except FilterError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _subscription(json: Mapping[str, Any]) -> Subscription | None:
    """The one in the body of CHECK_CLIENT_CONFIG, where there is one."""
    found = json.get("subscriptionData")
    return Subscription.from_json(found) if found else None
