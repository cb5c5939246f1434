"""Groups, for admin tools: codes 200, 201, 203, 204, 207, 208, 300, 317, 352.

See docs/protocol/request-codes.md#administrators-and-slaves-to-brokers,
docs/protocol/json.md#clients and docs/protocol/json.md#offsets-and-statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.handlers.admin.saved import answer_saved, refuse_on_slave
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.members import ConnectedClient, Consumers, Producers
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.offsets.group_lag import GroupLag
from roquet.common.steps import Steps, in_parts
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies.sliced import encode_table
from roquet.protocol.bodies.tables import GroupConfig, parse_request
from roquet.protocol.headers.admin import (
    ConsumeStatsHeader,
    DeleteGroupHeader,
    GroupConfigHeader,
    GroupHeader,
    ProducerGroupHeader,
    TopicHeader,
)
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import check_group
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices

_GROUP_SIZE_MAX: Final = 65_536
"""Bytes of the configuration of one group; Apache's tools send some 300."""


class GroupAdmin:
    """Creates, changes, deletes and describes groups.

    :param offsets: the consumer offsets.
    :param lag: computes offsets and backlog of a group.
    """

    def __init__(
        self,
        config: BrokerConfig,
        groups: GroupRegistry,
        consumers: Consumers[Connection],
        producers: Producers[Connection],
        offsets: ConsumerOffsets,
        lag: GroupLag,
        slices: Slices,
    ) -> None:
        self._config = config
        self._slices = slices
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._offsets = offsets
        self._lag = lag

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._slices.handler(self.all_groups),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.one_group,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._slices.handler(
                self.consumer_connections
            ),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._slices.handler(
                self.producer_connections
            ),
            RequestCode.GET_CONSUME_STATS: self._slices.handler(self.consume_stats),
            RequestCode.GET_BROKER_CONSUME_STATS: self._slices.handler(self.all_consume_stats),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
        }

    def update(self, request: Command, connection: Connection) -> None:
        """Create or change a group; the answer is sent once the table is saved."""
        refuse_on_slave(self._config)
        group = parse_request(request.body, GroupConfig.from_json, _GROUP_SIZE_MAX)
        try:
            check_group(group.name)
        except MessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._groups.update(group, partial(answer_saved, request, connection))

    def delete(self, request: Command, connection: Connection) -> None:
        refuse_on_slave(self._config)
        header = DeleteGroupHeader.read(request.fields)
        if header.remove_offset or header.clean_offset:
            self._offsets.forget_group(header.group_name)
        self._groups.delete(header.group_name, partial(answer_saved, request, connection))

    def all_groups(self, request: Command) -> Steps[Command]:
        body = yield from encode_table(self._groups.to_table())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def consumer_connections(self, request: Command) -> Steps[Command]:
        name = GroupHeader.read(request.fields).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of group {name} is connected"
            )
        connections = yield from _connections(group.members.values())
        document = {
            "consumeFromWhere": group.consume_from,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {
                topic: wanted.to_json() for topic, wanted in group.subscriptions.items()
            },
        }
        body = b'{"connectionSet":%b,%b' % (connections, dump_bytes(document)[1:])
        return request.answer(ResponseCode.SUCCESS, body=body)

    def producer_connections(self, request: Command) -> Steps[Command]:
        name = ProducerGroupHeader.read(request.fields).producer_group
        members = self._producers.groups.get(name)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no producer of group {name} is connected")
        connections = yield from _connections(members.values())
        return request.answer(ResponseCode.SUCCESS, body=b'{"connectionSet":%b}' % connections)

    def consume_stats(self, request: Command) -> Steps[Command]:
        """A group's consumer offset and backlog in each queue of its topics."""
        header = GroupHeader.read(request.fields)
        group = header.consumer_group
        lag = self._lag
        if header.topic:
            topics = lag.still_wanted(group, [header.topic])
        else:
            topics = yield from lag.topics_of(group)
        body = bytearray()
        yield from lag.stats(group, topics, body)
        return request.answer(ResponseCode.SUCCESS, body=bytes(body))

    def all_consume_stats(self, request: Command) -> Steps[Command]:
        """The offsets of every group: a table for each of its topics, or of its ordered ones."""
        only_ordered = ConsumeStatsHeader.read(request.fields).is_order
        body = bytearray(
            b'{"brokerAddr":%b,"consumeStatsList":[' % dump_bytes(self._config.address)
        )
        backlog = 0
        comma = b""
        for group in list(self._groups.groups):
            body += b"%b{%b:[" % (comma, dump_bytes(group))
            topics = yield from self._lag.topics_of(group)
            comma = b""
            for topic in topics:
                if topic.order or not only_ordered:
                    body += comma
                    backlog += yield from self._lag.stats(group, [topic], body)
                    comma = b","
            body += b"]}"
            comma = b","
            yield
        body += b'],"totalDiff":%d}' % backlog
        return request.answer(ResponseCode.SUCCESS, body=bytes(body))

    def one_group(self, request: Command, _: Connection) -> Command:
        name = GroupConfigHeader.read(request.fields).group
        group = self._groups.groups.get(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist"
            )
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes(group.to_json()))

    def groups_of_topic(self, request: Command, _: Connection) -> Command:
        """The groups that subscribe to the topic now, or have offsets in it."""
        topic = TopicHeader.read(request.fields).topic
        online = (
            group.name for group in self._consumers.groups.values() if topic in group.subscriptions
        )
        names = sorted({*online, *self._offsets.groups_of(topic)})
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes({"groupList": names}))


def _connections(clients: Iterable[ConnectedClient]) -> Steps[bytes]:
    parts = []
    for part in in_parts(list(clients)):
        parts.append(dump_bytes([_connection(client) for client in part])[1:-1])
        yield
    return b"[%b]" % b",".join(parts)


def _connection(client: ConnectedClient) -> dict[str, Any]:
    return {
        "clientAddr": client.address,
        "clientId": client.client_id,
        "language": client.language,
        "version": client.version,
    }
