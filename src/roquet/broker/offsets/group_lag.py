"""Where groups stand in the queues of their topics, as tools show it.

See docs/protocol/administration.md#lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from roquet.broker.metadata.members import Consumers
from roquet.broker.metadata.metadata import Metadata
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import TopicConfig, queue_to_json
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect
from roquet.protocol.records.message import MessageQueue
from roquet.storage.store import Store
from roquet.transport.connection import Connection


class GroupLag:
    """Compares progress with the ends of queues.

    :param broker_name: as clients know it; queues are told by it.
    :param tps: messages a second of a topic that a group gets.
    """

    def __init__(
        self,
        metadata: Metadata,
        consumers: Consumers[Connection],
        progress: ConsumerOffsets,
        store: Store,
        broker_name: str,
        tps: Callable[[str, str], float],
    ) -> None:
        self._metadata = metadata
        self._consumers = consumers
        self._progress = progress
        self._store = store
        self._broker_name = broker_name
        self._tps = tps

    def topics_of(self, group: str) -> Steps[list[TopicConfig]]:
        """Those in which the group has progress and that it still wants, its retry topic among them.

        See docs/pitfalls.md#trap-49.
        """
        topics: list[TopicConfig] = []
        for names in in_parts(self._progress.topics_of(group)):
            topics += self.still_wanted(group, names)
            yield
        return topics

    def still_wanted(self, group: str, names: Iterable[str]) -> list[TopicConfig]:
        topics = (
            self._metadata.topics.get(name)
            for name in names
            if not self._consumers.gave_up(group, name)
        )
        return [topic for topic in topics if topic is not None]

    def stats(self, group: str, topics: Sequence[TopicConfig], out: bytearray) -> Steps[int]:
        """Append ConsumeStats: where the group is in each queue of the topics, and how fast it goes.

        What is written goes behind the rest at once: of 10 MB each copy more takes 3 ms, all in one step.

        :return: how many messages the group has before it.
        :raises Refused: a topic has too many queues for an answer.
        """
        tps, behind, comma = 0.0, 0, b""
        for some in in_parts(topics):
            tps += sum(self._tps(topic.name, group) for topic in some)
            yield
        out += b'{"consumeTps":%b,"offsetTable":{' % dump_bytes(tps)
        for topic in topics:
            for places in in_parts(self._places(group, topic)):
                behind += sum(
                    place["brokerOffset"] - place["consumerOffset"] for _, place in places
                )
                out += comma + dump_dialect(ObjectKeys(places))[1:-1]
                comma = b","
                yield
            yield
        out += b"}}"
        return behind

    def _places(self, group: str, topic: TopicConfig) -> Iterator[tuple[str, dict[str, int]]]:
        for queue_id in self._metadata.topic_registry.queues_to_scan(topic.name, topic.read_queues):
            queue = MessageQueue(topic.name, self._broker_name, queue_id)
            yield dump_bytes(queue_to_json(queue)).decode(), self._position(group, queue)

    def _position(self, group: str, queue: MessageQueue) -> dict[str, int]:
        consumed = self._progress.committed(group, queue.topic, queue.queue_id) or 0
        last_ms = (
            self._store.store_time(queue.topic, queue.queue_id, consumed - 1) if consumed > 0 else 0
        )
        return {
            "brokerOffset": max(0, self._store.max_offset(queue.topic, queue.queue_id)),
            "consumerOffset": consumed,
            "lastTimestamp": max(0, last_ms),
        }
