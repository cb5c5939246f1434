"""The lag of consumer groups: their offsets compared with the ends of the queues, for tools.

See docs/protocol/administration.md#lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import TopicConfig, queue_key
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect
from roquet.protocol.records.message import MessageQueue
from roquet.storage.store import Store
from roquet.transport.connection import Connection


class GroupLag:
    """Computes ConsumeStats: offset, end and lag of a group in each queue of its topics.

    :param broker_name: the broker's name in the message queues of the answer.
    :param tps: topic and group -> messages per second that the group gets.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        consumers: Consumers[Connection],
        offsets: ConsumerOffsets,
        store: Store,
        broker_name: str,
        tps: Callable[[str, str], float],
    ) -> None:
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._broker_name = broker_name
        self._tps = tps

    def topics_of(self, group: str) -> Steps[list[TopicConfig]]:
        """The topics in which the group has offsets and to which it still subscribes.

        Its retry topic is among them.

        See docs/pitfalls.md#trap-49.
        """
        topics: list[TopicConfig] = []
        for names in in_parts(self._offsets.topics_of(group)):
            topics += self.still_wanted(group, names)
            yield
        return topics

    def still_wanted(self, group: str, names: Iterable[str]) -> list[TopicConfig]:
        topics = (
            self._topics.topics.get(name)
            for name in names
            if not self._consumers.has_unsubscribed(group, name)
        )
        return [topic for topic in topics if topic is not None]

    def stats(self, group: str, topics: Sequence[TopicConfig], out: bytearray) -> Steps[int]:
        """Append the JSON of ConsumeStats to `out`.

        Each part is appended to `out` directly: one more copy of an answer of 10 MB takes 3 ms in
        one step.

        :returns: the group's lag in messages.
        :raises Refused: a topic has too many queues for an answer.
        """
        tps = 0.0
        lag = 0
        comma = b""
        for some in in_parts(topics):
            tps += sum(self._tps(topic.name, group) for topic in some)
            yield
        out += b'{"consumeTps":%b,"offsetTable":{' % dump_bytes(tps)
        for topic in topics:
            for queues in in_parts(self._offset_wrappers(group, topic)):
                lag += sum(
                    offsets["brokerOffset"] - offsets["consumerOffset"] for _, offsets in queues
                )
                out += comma + dump_dialect(ObjectKeys(queues))[1:-1]
                comma = b","
                yield
            yield
        out += b"}}"
        return lag

    def _offset_wrappers(
        self, group: str, topic: TopicConfig
    ) -> Iterator[tuple[str, dict[str, int]]]:
        """The JSON of each queue with its OffsetWrapper."""
        for queue_id in self._topics.queues_to_scan(topic.name, topic.read_queues):
            queue = MessageQueue(topic.name, self._broker_name, queue_id)
            yield queue_key(queue), self._offset_wrapper(group, queue)

    def _offset_wrapper(self, group: str, queue: MessageQueue) -> dict[str, int]:
        """The fields of Apache's OffsetWrapper; `lastTimestamp` is of the last consumed message."""
        consumed = self._offsets.committed(group, queue.topic, queue.queue_id) or 0
        last_ms = (
            self._store.store_time(queue.topic, queue.queue_id, consumed - 1) if consumed > 0 else 0
        )
        return {
            "brokerOffset": max(0, self._store.max_offset(queue.topic, queue.queue_id)),
            "consumerOffset": consumed,
            "lastTimestamp": max(0, last_ms),
        }
