"""Admin tools and where groups stand: reset 222, clone 314.

See docs/pitfalls.md#trap-31, docs/protocol/consuming.md#reset-by-an-administrator and
docs/protocol/administration.md#cloning-offsets.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.metadata import Metadata
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.common.limited_log import LimitedLog
from roquet.common.steps import Steps
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig, queue_to_json
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
"""So many queues a log line names."""
TO_THE_END: Final = -1


class OffsetAdmin:
    """Sets groups back or ahead, copies one group's progress to another.

    :param broker_name: as clients know it; queues are told by it.
    """

    def __init__(
        self,
        metadata: Metadata,
        consumers: Consumers[Connection],
        progress: ConsumerOffsets,
        store: Store,
        broker_name: str,
        slices: Slices,
    ) -> None:
        self._limited_log = LimitedLog(log)
        self._slices = slices
        self._metadata = metadata
        self._consumers = consumers
        self._progress = progress
        self._store = store
        self._broker_name = broker_name

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._slices.handler(self.reset),
            RequestCode.CLONE_GROUP_OFFSET: self._slices.handler(self.clone),
        }

    # resetting

    def reset(self, request: Command) -> Steps[Command]:
        """Tell each member of an online group where to go on; it is they who store that."""
        header = ResetOffsetHeader.read(request.fields)
        topic = self._metadata.topics.get(header.topic)
        if topic is None:
            remark = f"topic {header.topic} does not exist here: nothing is reset"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        offsets: dict[MessageQueue, int] = {}
        for queue in self._queues(topic, header.queue_id):
            offsets[queue] = self._wanted(header, queue)
            yield
        channels = self._consumers.channels(header.group)
        if not channels:
            remark = f"no consumer of group {header.group} is online: reset its offsets in {header.topic} one by one"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        for channel in channels:
            if (
                channel.is_open and not channel.is_writable
            ):  # told half, a group would be in two places
                remark = f"[OVERLOAD]{channel.why_deaf}: nobody is told to reset {header.group}, try again"
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        fields = ResetOffsetHeader(header.topic, header.group, header.timestamp).write()
        body = _table_of_c(offsets) if request.language == "CPP" else _table(offsets)
        for channel in channels:
            channel.notify(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(fields), body))
            yield
        shown = sorted((queue.queue_id, offset) for queue, offset in offsets.items())[
            :_QUEUES_SHOWN
        ]
        text = "group is told where to go on: group=%s topic=%s queues=%d offsets=%s"
        kind = f"reset {header.group}"
        self._tell(logging.INFO, kind, text, header.group, header.topic, len(offsets), shown)
        return request.answer(ResponseCode.SUCCESS, body=_table(offsets))

    def _queues(self, topic: TopicConfig, wanted: int | None) -> list[MessageQueue]:
        """All of the topic, or the one that 5.x names."""
        queue_ids = self._metadata.topic_registry.queues_to_scan(topic.name, topic.write_queues)
        if wanted is not None and wanted >= 0:
            if wanted not in queue_ids:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"topic {topic.name} has no queue {wanted}"
                )
            queue_ids = range(wanted, wanted + 1)
        return [MessageQueue(topic.name, self._broker_name, queue_id) for queue_id in queue_ids]

    def _wanted(self, header: ResetOffsetHeader, queue: MessageQueue) -> int:
        committed = self._progress.committed(header.group, queue.topic, queue.queue_id)
        if committed is None:
            remark = (
                f"group {header.group} has no offset in queue {queue.queue_id} of {queue.topic}: "
                "nothing is reset"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if header.offset is not None and header.offset >= 0:
            wanted = min(header.offset, self._store.max_offset(queue.topic, queue.queue_id))
        elif header.timestamp == TO_THE_END:
            wanted = self._store.max_offset(queue.topic, queue.queue_id)
        else:
            wanted = self._store.offset_at_time(queue.topic, queue.queue_id, header.timestamp)
        return max(0, wanted if header.is_force else min(wanted, committed))

    def _tell(self, level: int, kind: str, text: str, *parts: object) -> None:
        """Who asks in a loop gets no line for each request."""
        self._limited_log.tell(level, kind, asyncio.get_running_loop().time(), text, *parts)

    # cloning

    def clone(self, request: Command) -> Steps[Command]:
        """Let a group stand where another one does, in a topic or, other than at Apache's, in all of them."""
        header = CloneOffsetHeader.read(request.fields)
        source = header.src_group
        for name in [header.topic] if header.topic else self._progress.topics_of(source):
            if name not in self._metadata.topics:
                text = "the progress of %.200s in %s is not cloned: there is no such topic"
                self._tell(logging.WARNING, "no topic", text, source, name)
            elif not header.offline and self._consumers.gave_up(source, name):
                text = "the progress of %.200s in %s is not cloned: it does not consume that now"
                self._tell(logging.WARNING, "not consumed", text, source, name)
            else:
                self._progress.clone(source, header.dest_group, name)
            yield
        return request.answer(ResponseCode.SUCCESS)


def _table(offsets: dict[MessageQueue, int]) -> bytes:
    table = ObjectKeys(
        {dump_bytes(queue_to_json(queue)).decode(): offset for queue, offset in offsets.items()}
    )
    return dump_dialect({"offsetTable": table})


def _table_of_c(offsets: dict[MessageQueue, int]) -> bytes:
    """As clients in C++ read it; also asked for by their language."""
    return dump_bytes(
        {"offsetTable": [queue_to_json(queue) | {"offset": at} for queue, at in offsets.items()]}
    )
