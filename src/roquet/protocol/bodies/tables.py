"""JSON bodies: routes, registrations, heartbeats, topic and group tables (docs/protocol/json.md).

`body` says how they are declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, TypeVar

from roquet.common.java import Int32, Int64
from roquet.protocol.bodies.body import Body, JsonMember, Table, WriteOnly
from roquet.protocol.filters.tags import EVERYTHING, TAG, TagFilter, tag_filter
from roquet.protocol.json.dialect import IntKeys, dump_bytes, load
from roquet.protocol.json.numbers import NumberError, as_int64, json_int
from roquet.protocol.records.message import READ_WRITE, MessageQueue

T = TypeVar("T")

DIALECT_VALUES_MAX: Final = 4096
"""Values of a request in fastjson's dialect, or its bare integer keys. They take some 10 ms.

No peer needs that dialect for a request.
"""
_REASON_MAX: Final = 500
"""Characters of an error: it may quote a member as long as the body."""


@dataclass(frozen=True, slots=True)
class DataVersion(Body):
    """The data version of a table: equal versions mean equal tables. `timestamp` in ms.

    `state_version` is 5.x's third part. It is kept for peers that compare it, and not written if 0.
    """

    timestamp: Int64 = 0
    counter: Int64 = 0
    state_version: Annotated[Int64, JsonMember("stateVersion", is_optional=True)] = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(now_ms, self.counter + 1, self.state_version)


UNIT: Final = 1
"""Bit of a topic's sysFlag: the topic belongs to a unit."""
UNIT_SUBSCRIPTION: Final = 2
"""Bit of a retry topic's sysFlag: its group consumes units."""
MASTER_ID: Final = 0
"""The broker id of a master."""


@dataclass(frozen=True, slots=True)
class TopicConfig(Body):
    name: Annotated[str, JsonMember("topicName")]
    read_queues: Annotated[Int32, JsonMember("readQueueNums")] = 16
    write_queues: Annotated[Int32, JsonMember("writeQueueNums")] = 16
    perm: Int32 = READ_WRITE
    filter_type: Annotated[str, JsonMember("topicFilterType")] = "SINGLE_TAG"
    sys_flag: Annotated[Int32, JsonMember("topicSysFlag")] = 0
    order: bool = False


@dataclass(frozen=True, slots=True)
class TopicTable(Table):
    """TopicConfigSerializeWrapper: the content of topics.json and of a registration."""

    topics: Annotated[Mapping[str, TopicConfig], JsonMember("topicConfigTable")] = field(
        default_factory=dict
    )
    version: Annotated[DataVersion, JsonMember("dataVersion")] = DataVersion()


@dataclass(frozen=True, slots=True)
class GroupConfig(Body):
    """SubscriptionGroupConfig."""

    name: Annotated[str, JsonMember("groupName")]
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: Annotated[Int32, JsonMember("retryQueueNums")] = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True


@dataclass(frozen=True, slots=True)
class GroupTable(Table):
    """SubscriptionGroupWrapper: the content of subscriptionGroup.json."""

    groups: Annotated[Mapping[str, GroupConfig], JsonMember("subscriptionGroupTable")] = field(
        default_factory=dict
    )
    version: Annotated[DataVersion, JsonMember("dataVersion")] = DataVersion()


@dataclass(frozen=True, slots=True)
class OffsetTable(Table):
    """ConsumerOffsetSerializeWrapper, the content of consumerOffset.json.

    `topic@group` -> queue id -> offset. `left_out` counts offsets of single queues.
    """

    offsets: Annotated[Mapping[str, Mapping[Int32, Int64]], JsonMember("offsetTable")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class DelayOffsetTable(Table):
    """DelayOffsetSerializeWrapper, the content of delayOffset.json.

    Delay level -> next queue offset.
    """

    offsets: Annotated[Mapping[Int32, Int64], JsonMember("offsetTable")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class QueueData(Body):
    """The queues of a topic on one broker name."""

    broker_name: str
    read_queues: Annotated[Int32, JsonMember("readQueueNums")]
    write_queues: Annotated[Int32, JsonMember("writeQueueNums")]
    perm: Int32
    topic_sys_flag: Annotated[Int32, JsonMember("topicSysFlag", other_name="topicSynFlag")] = 0


def _read_cluster(json: object) -> str:
    return str(json or "")


def _read_addresses(json: Mapping[str, Any] | None) -> dict[int, str]:
    return {as_int64(broker_id): str(address) for broker_id, address in (json or {}).items()}


def _write_addresses(addresses: Mapping[int, str]) -> IntKeys:
    return IntKeys(sorted(addresses.items()))


@dataclass(frozen=True, slots=True)
class BrokerData(Body):
    """The addresses of one broker name, by broker id: 0 is the master, all others are slaves."""

    cluster: Annotated[str, JsonMember("cluster", read=_read_cluster)]
    broker_name: str
    addresses: Annotated[
        Mapping[int, str],
        JsonMember("brokerAddrs", read=_read_addresses, write=_write_addresses),
    ]

    @property
    def master(self) -> str | None:
        """The master's address."""
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class Route(Body):
    """TopicRouteData: the brokers and queues of a topic."""

    WRITE_ONLY: ClassVar[WriteOnly] = {"filterServerTable": lambda _: {}}

    brokers: Annotated[tuple[BrokerData, ...], JsonMember("brokerDatas")] = ()
    queues: Annotated[tuple[QueueData, ...], JsonMember("queueDatas")] = ()
    order_conf: Annotated[str | None, JsonMember("orderTopicConf", is_optional=True)] = None


@dataclass(frozen=True, slots=True)
class ClusterInfo(Table):
    brokers: Annotated[Mapping[str, BrokerData], JsonMember("brokerAddrTable")] = field(
        default_factory=dict
    )
    clusters: Annotated[Mapping[str, tuple[str, ...]], JsonMember("clusterAddrTable")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class Registration(Body):
    """RegisterBrokerBody: a broker's topics. `compressed_registration` has the compressed form."""

    table: Annotated[TopicTable, JsonMember("topicConfigSerializeWrapper")] = TopicTable()
    filter_servers: Annotated[tuple[str, ...], JsonMember("filterServerList")] = ()


@lru_cache(1024)
def _tag_sets(expression: str) -> tuple[list[int], list[str]]:
    """The tag codes and tags of an expression, sorted.

    Sorting them for each heartbeat would make that of 100 groups take 1.5 times as long.
    """
    found = tag_filter(expression)
    return sorted(found.codes), sorted(found.tags)


@dataclass(frozen=True, slots=True)
class Subscription(Body):
    """SubscriptionData: a group's subscription of one topic.

    `version` is the time when the client made it (ms; Go clients: ns).
    """

    WRITE_ONLY: ClassVar[WriteOnly] = {
        "codeSet": lambda self: _tag_sets(self.expression)[0] if self.is_by_tag else [],
        "tagsSet": lambda self: _tag_sets(self.expression)[1] if self.is_by_tag else [],
    }

    topic: str
    expression: Annotated[str, JsonMember("subString")] = "*"
    version: Annotated[Int64, JsonMember("subVersion")] = 0
    expression_type: str = TAG
    class_filter: Annotated[bool, JsonMember("classFilterMode")] = False

    @property
    def is_by_tag(self) -> bool:
        return self.expression_type == TAG

    @property
    def tag_filter(self) -> TagFilter:
        """The filter. Tag codes are computed here: Go clients send them as text, hashed otherwise.

        See docs/protocol/json.md#subscriptions.
        """
        return tag_filter(self.expression) if self.is_by_tag else EVERYTHING


PUSH: Final = "CONSUME_PASSIVELY"
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
FROM_LAST: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class ConsumerData(Body):
    group: Annotated[str, JsonMember("groupName")]
    consume_type: str = PUSH
    message_model: str = CLUSTERING
    consume_from: Annotated[str, JsonMember("consumeFromWhere")] = FROM_LAST
    subscriptions: Annotated[tuple[Subscription, ...], JsonMember("subscriptionDataSet")] = ()
    unit_mode: bool = False


def _read_producers(json: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
    return tuple(str(producer["groupName"]) for producer in json or ())


def _write_producers(groups: Iterable[str]) -> list[dict[str, str]]:
    return [{"groupName": group} for group in groups]


@dataclass(frozen=True, slots=True)
class Heartbeat(Body):
    """HeartbeatData: the producer and consumer groups of one client."""

    client_id: Annotated[str, JsonMember("clientID")]
    producers: Annotated[
        tuple[str, ...],
        JsonMember("producerDataSet", read=_read_producers, write=_write_producers),
    ] = ()
    consumers: Annotated[tuple[ConsumerData, ...], JsonMember("consumerDataSet")] = ()


def queue_from_json(json: Mapping[str, Any]) -> MessageQueue:
    return MessageQueue(str(json["topic"]), str(json["brokerName"]), json_int(json, "queueId"))


def queue_to_json(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_key(queue: MessageQueue) -> str:
    """A queue as the key of a table, for `ObjectKeys`."""
    return dump_bytes(queue_to_json(queue)).decode()


def queue_of_key(key: str) -> MessageQueue:
    """The queue that is a key of a decoded table."""
    return queue_from_json(load(key))


def _read_queues(json: Iterable[Mapping[str, Any]] | None) -> frozenset[MessageQueue]:
    return frozenset(map(queue_from_json, json or ()))


def _write_queues(queues: Iterable[MessageQueue]) -> list[dict[str, Any]]:
    return list(map(queue_to_json, sorted(queues)))


@dataclass(frozen=True, slots=True)
class QueueLocks(Body):
    """The body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    group: Annotated[str, JsonMember("consumerGroup")]
    client_id: str
    queues: Annotated[
        frozenset[MessageQueue],
        JsonMember("mqSet", read=_read_queues, write=_write_queues),
    ]


def parse(
    body: bytes, kind: Callable[[Mapping[str, Any]], T], dialect_values_max: int | None = None
) -> T:
    """Decode a body to one of the types above: `parse(body, Heartbeat.from_json)`.

    :param dialect_values_max: as in `load`.
    :raises ValueError: it is no JSON object, or a member is missing or invalid.
    """
    json = load(body, dialect_values_max)
    if not isinstance(json, dict):
        raise ValueError(f"JSON object expected, found {type(json).__name__}")
    return read_members(lambda: kind(json))


def read_members(work: Callable[[], T]) -> T:
    """Return the result of `work`, which reads members of a decoded document.

    :raises ValueError: a member is missing or of a wrong type.
    """
    try:
        return work()
    except NumberError as error:
        raise ValueError(f"JSON: {error}"[:_REASON_MAX]) from None
    except KeyError as error:
        raise ValueError(f"JSON: member {error.args[0]} is missing"[:_REASON_MAX]) from error
    except RecursionError as error:
        raise ValueError("JSON: members are nested too deep") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(
            "JSON: a member has a wrong type, such as an array in place of an object"
        ) from error


def parse_request(
    body: bytes, kind: Callable[[Mapping[str, Any]], T], size_max: int, setting: str = ""
) -> T:
    """`parse` for a server: a body that would hold up the event loop is refused.

    :param size_max: bytes; a MiB of standard JSON takes some 10 ms.
    :param setting: the name of the setting with this limit; empty: the limit is fixed.
    :raises ValueError: as `parse`, or the body is too large.
    """
    if len(body) > size_max:
        raise ValueError(
            f"a JSON body of {len(body)} bytes, allowed are {size_max}"
            + (f" ({setting})" if setting else "")
        )
    return parse(body, kind, DIALECT_VALUES_MAX)
