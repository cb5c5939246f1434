"""Admin tools and groups: codes 200, 201, 203, 204, 207, 208, 300 (protocol.md 2.5, 4.4, 4.5)."""

from __future__ import annotations

from functools import partial
from typing import Any

from roquet.broker.catalogue import Catalogue
from roquet.broker.handlers.saved import answer_saved, refuse_on_slave
from roquet.broker.members import Consumers, Member, Producers
from roquet.broker.progress import ConsumerProgress
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies import GroupConfig, TopicConfig, parse, queue_to_json
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import DeleteGroupHeader, GroupHeader, ProducerGroupHeader, TopicHeader
from roquet.protocol.json_dialect import ObjectKeys, dump_bytes, dump_dialect
from roquet.protocol.message import MessageQueue, check_group
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler


class GroupAdmin:
    """Creates, changes, deletes and describes groups.

    :param broker_name: as clients know it; queues are told by it.
    :param is_slave: then groups come from the master, and from nobody else.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        consumers: Consumers[Connection],
        producers: Producers[Connection],
        progress: ConsumerProgress,
        store: Store,
        broker_name: str,
        *,
        is_slave: bool,
    ) -> None:
        self._catalogue = catalogue
        self._consumers = consumers
        self._producers = producers
        self._progress = progress
        self._store = store
        self._broker_name = broker_name
        self._is_slave = is_slave

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
        }

    def update(self, request: Command, connection: Connection) -> None:
        """Answered once the change is on disk."""
        refuse_on_slave(self._is_slave)
        group = parse(request.body, GroupConfig.from_json)
        try:
            check_group(group.name)
        except MessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._catalogue.update_group(group, partial(answer_saved, request, connection))

    def delete(self, request: Command, connection: Connection) -> None:
        refuse_on_slave(self._is_slave)
        header = DeleteGroupHeader.read(request.fields)
        if header.remove_offset:
            self._progress.forget_group(header.group_name)
        self._catalogue.delete_group(header.group_name, partial(answer_saved, request, connection))

    def all_groups(self, request: Command, connection: Connection) -> Command:
        body = dump_bytes(self._catalogue.group_registry.to_table().to_json())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def consumer_connections(self, request: Command, connection: Connection) -> Command:
        name = GroupHeader.read(request.fields).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of group {name} is connected")
        document = {
            "connectionSet": [_connection(member) for member in group.members.values()],
            "consumeFromWhere": group.consume_from,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {topic: wanted.to_json() for topic, wanted in group.subscriptions.items()},
        }
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes(document))

    def producer_connections(self, request: Command, connection: Connection) -> Command:
        name = ProducerGroupHeader.read(request.fields).producer_group
        members = self._producers.groups.get(name)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no producer of group {name} is connected")
        document = {"connectionSet": [_connection(member) for member in members.values()]}
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes(document))

    def consume_stats(self, request: Command, connection: Connection) -> Command:
        """Where a group stands in each queue of its topics, its retry topic included (trap 49)."""
        header = GroupHeader.read(request.fields)
        group = header.consumer_group
        names = [header.topic] if header.topic else self._progress.topics_of(group)
        offsets = ObjectKeys()
        for name in names:
            topic = self._catalogue.topics.get(name)
            if topic is not None and not self._consumers.gave_up(group, name):
                offsets.update(self._positions(group, topic))
        return request.answer(ResponseCode.SUCCESS, body=dump_dialect({"consumeTps": 0.0, "offsetTable": offsets}))

    def groups_of_topic(self, request: Command, connection: Connection) -> Command:
        """Those that want the topic now, and those that ever got something of it."""
        topic = TopicHeader.read(request.fields).topic
        online = (group.name for group in self._consumers.groups.values() if topic in group.subscriptions)
        names = sorted({*online, *self._progress.groups_of(topic)})
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes({"groupList": names}))

    def _positions(self, group: str, topic: TopicConfig) -> dict[str, dict[str, int]]:
        queues = (MessageQueue(topic.name, self._broker_name, queue_id) for queue_id in range(topic.read_queues))
        return {dump_bytes(queue_to_json(queue)).decode(): self._position(group, queue) for queue in queues}

    def _position(self, group: str, queue: MessageQueue) -> dict[str, int]:
        consumed = self._progress.committed(group, queue.topic, queue.queue_id) or 0
        last_ms = self._store.store_time(queue.topic, queue.queue_id, consumed - 1) if consumed > 0 else 0
        return {
            "brokerOffset": max(0, self._store.max_offset(queue.topic, queue.queue_id)),
            "consumerOffset": consumed,
            "lastTimestamp": max(0, last_ms),
        }


def _connection(member: Member) -> dict[str, Any]:
    return {
        "clientAddr": member.address,
        "clientId": member.client_id,
        "language": member.language,
        "version": member.version,
    }
