"""Resets and clones consumer offsets for admin tools: codes 222, 314.

See docs/pitfalls.md#trap-31, docs/protocol/consuming.md#reset-by-an-administrator and
docs/protocol/administration.md#cloning-offsets.
"""

from __future__ import annotations

import logging
from typing import Final

from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.common.limited_log import LimitedLog
from roquet.common.steps import Steps
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig, queue_key, queue_to_json
from roquet.protocol.headers.offsets import CloneOffsetHeader, ResetOffsetHeader
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

_QUEUES_SHOWN: Final = 32
"""Queues that one log line names."""
TO_THE_END: Final = -1
"""The timestamp that resets a group to the end of its queues."""


class OffsetAdmin:
    """Resets the offsets of a group, and copies the offsets of one group to another.

    :param offsets: the consumer offsets.
    :param broker_name: as clients know it; answers name queues by it.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        consumers: Consumers[Connection],
        offsets: ConsumerOffsets,
        store: Store,
        broker_name: str,
        slices: Slices,
    ) -> None:
        self._limited_log = LimitedLog(log)
        self._slices = slices
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._broker_name = broker_name

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._slices.handler(self.reset),
            RequestCode.CLONE_GROUP_OFFSET: self._slices.handler(self.clone),
        }

    # resetting

    def reset(self, request: Command) -> Steps[Command]:
        """Send new offsets to each member of a connected group; the members commit them."""
        header = ResetOffsetHeader.read(request.fields)
        topic = self._topics.topics.get(header.topic)
        if topic is None:
            remark = f"topic {header.topic} does not exist on this broker: nothing is reset"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        offsets: dict[MessageQueue, int] = {}
        for queue in self._queues(topic, header.queue_id):
            offsets[queue] = self._wanted(header, queue)
            yield
        channels = self._consumers.channels(header.group)
        if not channels:
            remark = (
                f"no consumer of group {header.group} is connected: "
                f"set its offsets in topic {header.topic} queue by queue"
            )
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        for channel in channels:
            # If only some members heard of it, the group would be half reset.
            if channel.is_open and not channel.is_writable:
                remark = (
                    f"[OVERLOAD]{channel.unread_remark}: "
                    f"no consumer is reset of group {header.group}, try again"
                )
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        fields = ResetOffsetHeader(header.topic, header.group, header.timestamp).write()
        body = _table_of_c(offsets) if request.language == "CPP" else _table(offsets)
        for channel in channels:
            channel.calls.notify(
                Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(fields), body)
            )
            yield
        shown = sorted((queue.queue_id, offset) for queue, offset in offsets.items())[
            :_QUEUES_SHOWN
        ]
        self._log(
            logging.INFO,
            f"reset {header.group}",
            "offset reset sent to consumers: group=%s topic=%s queues=%d offsets=%s",
            header.group,
            header.topic,
            len(offsets),
            shown,
        )
        return request.answer(ResponseCode.SUCCESS, body=_table(offsets))

    def _queues(self, topic: TopicConfig, wanted: int | None) -> list[MessageQueue]:
        """All queues of the topic, or the one that the request names (5.x)."""
        queue_ids = self._topics.queues_to_scan(topic.name, topic.write_queues)
        if wanted is not None and wanted >= 0:
            if wanted not in queue_ids:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"topic {topic.name} has no queue {wanted}"
                )
            queue_ids = range(wanted, wanted + 1)
        return [MessageQueue(topic.name, self._broker_name, queue_id) for queue_id in queue_ids]

    def _wanted(self, header: ResetOffsetHeader, queue: MessageQueue) -> int:
        committed = self._offsets.committed(header.group, queue.topic, queue.queue_id)
        if committed is None:
            remark = (
                f"group {header.group} has no offset in queue {queue.queue_id} of topic "
                f"{queue.topic}: nothing is reset"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if header.offset is not None and header.offset >= 0:
            wanted = min(header.offset, self._store.max_offset(queue.topic, queue.queue_id))
        elif header.timestamp == TO_THE_END:
            wanted = self._store.max_offset(queue.topic, queue.queue_id)
        else:
            wanted = self._store.offset_at_time(queue.topic, queue.queue_id, header.timestamp)
        return max(0, wanted if header.is_force else min(wanted, committed))

    def _log(self, level: int, kind: str, text: str, *args: object) -> None:
        """Log at most one line per minute and kind: a tool may ask in a loop."""
        self._limited_log.tell(level, kind, text, *args)

    # cloning

    def clone(self, request: Command) -> Steps[Command]:
        """Copy a group's offsets in one topic to another group.

        Without a topic, the offsets in all topics are copied; Apache's broker does not do that.
        """
        header = CloneOffsetHeader.read(request.fields)
        source = header.src_group
        for name in [header.topic] if header.topic else self._offsets.topics_of(source):
            if name not in self._topics.topics:
                text = "offsets not cloned, the topic does not exist: group=%.200s topic=%s"
                self._log(logging.WARNING, "no topic", text, source, name)
            elif not header.offline and self._consumers.has_unsubscribed(source, name):
                text = "offsets not cloned, the group does not subscribe to the topic now: "
                text += "group=%.200s topic=%s"
                self._log(logging.WARNING, "not consumed", text, source, name)
            else:
                self._offsets.clone(source, header.dest_group, name)
            yield
        return request.answer(ResponseCode.SUCCESS)


def _table(offsets: dict[MessageQueue, int]) -> bytes:
    table = ObjectKeys({queue_key(queue): offset for queue, offset in offsets.items()})
    return dump_dialect({"offsetTable": table})


def _table_of_c(offsets: dict[MessageQueue, int]) -> bytes:
    """The table in the form that C++ clients read; the request's language asks for it."""
    return dump_bytes(
        {"offsetTable": [queue_to_json(queue) | {"offset": at} for queue, at in offsets.items()]}
    )
