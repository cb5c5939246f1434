"""Consumer offsets and the bounds of queues: codes 14, 15 and 29 to 32.

See docs/pitfalls.md#trap-29, docs/pitfalls.md#trap-30 and docs/protocol/consuming.md#offsets.
"""

from __future__ import annotations

from roquet.broker.offsets.consumer_offsets import ConsumerOffsets, start_of_young_queue
from roquet.errors import Refused
from roquet.protocol.headers.offsets import (
    OffsetAnswer,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeAnswer,
    UpdateOffsetHeader,
)
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler


class OffsetHandler:
    """Answers requests for consumer offsets and for the bounds of queues.

    :param offsets: the consumer offsets.
    :param is_slave: whether consumer offsets may be beyond the queue's end here: a slave stores
        them as they come, since its queues may lag.
    """

    def __init__(self, offsets: ConsumerOffsets, store: Store, *, is_slave: bool) -> None:
        self._offsets = offsets
        self._store = store
        self._is_slave = is_slave

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
        }

    def query_offset(self, request: Command, _: Connection) -> Command:
        header = QueryOffsetHeader.read(request.fields)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.committed(header.consumer_group, topic, queue_id)
        if offset is None:
            min_offset = self._store.min_offset(topic, queue_id)
            in_memory = self._store.is_in_memory(topic, queue_id, 0)
            offset = start_of_young_queue(min_offset, first_in_memory=in_memory)
        if offset is None:
            remark = (
                f"group {header.consumer_group} has no offset in queue {queue_id} of topic {topic}"
            )
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.answer(ResponseCode.SUCCESS, None, OffsetAnswer(offset).write())

    def update_offset(self, request: Command, _: Connection) -> Command:
        header = UpdateOffsetHeader.read(request.fields)
        before = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if header.only_forward and before is not None and before >= header.commit_offset:
            return request.answer(ResponseCode.SUCCESS)
        offset = header.commit_offset
        if not self._is_slave:
            offset = self._store.within_queue(header.topic, header.queue_id, offset)
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, offset)
        return request.answer(ResponseCode.SUCCESS)

    def search_offset(self, request: Command, _: Connection) -> Command:
        header = SearchOffsetHeader.read(request.fields)
        offset = self._store.offset_at_time(header.topic, header.queue_id, header.timestamp)
        return request.answer(ResponseCode.SUCCESS, None, OffsetAnswer(offset).write())

    def max_offset(self, request: Command, _: Connection) -> Command:
        header = QueueHeader.read(request.fields)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return request.answer(ResponseCode.SUCCESS, None, OffsetAnswer(offset).write())

    def min_offset(self, request: Command, _: Connection) -> Command:
        header = QueueHeader.read(request.fields)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return request.answer(ResponseCode.SUCCESS, None, OffsetAnswer(offset).write())

    def earliest_store_time(self, request: Command, _: Connection) -> Command:
        header = QueueHeader.read(request.fields)
        first = self._store.min_offset(header.topic, header.queue_id)
        timestamp = self._store.store_time(header.topic, header.queue_id, first)
        return request.answer(ResponseCode.SUCCESS, None, StoreTimeAnswer(timestamp).write())
