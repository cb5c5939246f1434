"""Topics, for admin tools and slaves: codes 17, 21, 202, 215, 305, 351.

See docs/protocol/administration.md#topics and docs/protocol/administration.md#what-a-slave-copies.
"""

from __future__ import annotations

from functools import partial

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.handlers.admin.jobs import Jobs
from roquet.broker.handlers.admin.saved import answer_saved, not_saved, refuse_on_slave
from roquet.broker.maintenance.queue_deletion import QueueDeletion
from roquet.broker.metadata.state_files import until_saved
from roquet.broker.metadata.topics import FILTER_TYPES, TopicRegistry
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.common.steps import Steps
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies.sliced import encode_object_keys, encode_table
from roquet.protocol.bodies.tables import TopicConfig, queue_key
from roquet.protocol.headers.admin import CreateTopicHeader, TopicHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue, check_topic
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices


class TopicAdmin:
    """Creates, changes, deletes and describes topics.

    :param offsets: the consumer offsets.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        offsets: ConsumerOffsets,
        store: Store,
        deletion: QueueDeletion,
        jobs: Jobs,
        slices: Slices,
    ) -> None:
        self._config = config
        self._slices = slices
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._deletion = deletion
        self._jobs = jobs

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._slices.handler(self.all_topics),
            RequestCode.GET_TOPIC_CONFIG: self.one_topic,
            RequestCode.GET_TOPIC_STATS_INFO: self._slices.handler(self.stats),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def update(self, request: Command, connection: Connection) -> None:
        """Create or change a topic; the answer is sent once the table is saved.

        The request's `order` is ignored: name servers say which topics are ordered.
        """
        refuse_on_slave(self._config)
        topic = _requested(CreateTopicHeader.read(request.fields))
        self._refuse_system(topic.name)
        self._topics.update(topic, partial(answer_saved, request, connection))

    def delete(self, request: Command, connection: Connection) -> None:
        """Delete a topic, its queues and all offsets in it.

        The offsets must not stay: a later topic of this name begins at queue offset 0.
        """
        refuse_on_slave(self._config)
        name = TopicHeader.read(request.fields).topic
        _check(name)
        self._refuse_system(name)
        work = partial(self._delete, name)
        self._jobs.answer_after(f"deletion of topic {name}", work, request, connection)

    async def _delete(self, name: str) -> None:
        await self._deletion.of_topic(name)
        self._offsets.forget_topic(name)
        try:
            await until_saved(partial(self._topics.delete, name))
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, not_saved(error)) from error

    def _refuse_system(self, name: str) -> None:
        if self._topics.is_system(name):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {name} is a system topic: it can be neither changed nor deleted",
            )

    def all_topics(self, request: Command) -> Steps[Command]:
        body = yield from encode_table(self._topics.to_table())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def one_topic(self, request: Command, _: Connection) -> Command:
        topic = self._known(TopicHeader.read(request.fields).topic)
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes(topic.to_json()))

    def _known(self, name: str) -> TopicConfig:
        topic = self._topics.topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
        return topic

    def stats(self, request: Command) -> Steps[Command]:
        name = TopicHeader.read(request.fields).topic
        queue_ids = self._topics.queues_to_scan(name, self._known(name).write_queues)
        offsets = yield from encode_object_keys(
            (queue_key(MessageQueue(name, self._config.broker_name, queue_id)), bounds)
            for queue_id, bounds in enumerate(map(partial(self._bounds, name), queue_ids))
        )
        return request.answer(ResponseCode.SUCCESS, body=b'{"offsetTable":%b}' % offsets)

    def _bounds(self, topic: str, queue_id: int) -> dict[str, int]:
        end = self._store.max_offset(topic, queue_id)
        last_ms = self._store.store_time(topic, queue_id, end - 1) if end > 0 else 0
        return {
            "lastUpdateTimestamp": max(0, last_ms),
            "maxOffset": end,
            "minOffset": self._store.min_offset(topic, queue_id),
        }

    def system_topics(self, request: Command, _: Connection) -> Command:
        body = dump_bytes({"topicList": self._topics.system_names})
        return request.answer(ResponseCode.SUCCESS, body=body)


def _requested(header: CreateTopicHeader) -> TopicConfig:
    """The topic that a request describes.

    :raises Refused: there can be no such topic.
    """
    _check(header.topic)
    if header.topic_filter_type not in FILTER_TYPES:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"topicFilterType is {header.topic_filter_type}: it must be one of {FILTER_TYPES}",
        )
    if header.read_queue_nums < 0 or header.write_queue_nums < 0:
        raise Refused(ResponseCode.SYSTEM_ERROR, "a topic cannot have fewer than 0 queues")
    return TopicConfig(
        header.topic,
        header.read_queue_nums,
        header.write_queue_nums,
        header.perm,
        header.topic_filter_type,
        header.topic_sys_flag,
    )


def _check(name: str) -> None:
    try:
        check_topic(name)
    except MessageError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
