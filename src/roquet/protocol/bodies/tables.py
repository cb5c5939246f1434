"""JSON bodies: routes, registrations, heartbeats, topic and group tables (docs/protocol/json.md).

Every type has `from_json` (from a decoded document) and `to_json` (for `dump_bytes` or
`dump_dialect`), with members in Apache's order. Unknown members are ignored, missing ones have
Apache's default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from roquet.protocol.filters.tags import EVERYTHING, TAG, TagFilter, tag_filter
from roquet.protocol.json.dialect import IntKeys, load
from roquet.protocol.json.numbers import NumberError, as_int32, as_int64, json_int, json_long
from roquet.protocol.records.message import READ_WRITE, MessageQueue

K = TypeVar("K")
T = TypeVar("T")

log = logging.getLogger(__name__)

DIALECT_VALUES_MAX: Final = 4096
"""Values of a body in fastjson's dialect, other than bare integer keys. They take some 10 ms.

No peer needs that dialect for a request or a route.
"""
_REASON_MAX: Final = 500
"""Characters of an error: it may quote a member as long as the body."""


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The data version of a table: equal versions mean equal tables. `timestamp` in ms.

    `state_version` is 5.x's third part. It is kept for peers that compare it, and not written if 0.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(now_ms, self.counter + 1, self.state_version)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> DataVersion:
        return cls(
            json_long(json, "timestamp", 0),
            json_long(json, "counter", 0),
            json_long(json, "stateVersion", 0),
        )

    def to_json(self) -> dict[str, Any]:
        state = {"stateVersion": self.state_version} if self.state_version else {}
        return {"counter": self.counter, **state, "timestamp": self.timestamp}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = READ_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> TopicConfig:
        return cls(
            str(json["topicName"]),
            json_int(json, "readQueueNums", 16),
            json_int(json, "writeQueueNums", 16),
            json_int(json, "perm", READ_WRITE),
            str(json.get("topicFilterType") or "SINGLE_TAG"),
            json_int(json, "topicSysFlag", 0),
            bool(json.get("order", False)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }


@dataclass(frozen=True, slots=True)
class TopicTable:
    """TopicConfigSerializeWrapper: the content of topics.json and of a registration."""

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    version: DataVersion = DataVersion()
    left_out: int = field(default=0, compare=False)
    """Number of invalid entries that `from_json` left out."""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> TopicTable:
        topics, left_out = table(json.get("topicConfigTable"), str, TopicConfig.from_json)
        return cls(topics, DataVersion.from_json(json.get("dataVersion") or {}), told(left_out))

    def to_json(self) -> dict[str, Any]:
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in self.topics.items()},
        }


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """SubscriptionGroupConfig."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> GroupConfig:
        return cls(
            str(json["groupName"]),
            bool(json.get("consumeEnable", True)),
            bool(json.get("consumeFromMinEnable", True)),
            bool(json.get("consumeBroadcastEnable", True)),
            json_int(json, "retryQueueNums", 1),
            json_int(json, "retryMaxTimes", 16),
            json_long(json, "brokerId", 0),
            json_long(json, "whichBrokerWhenConsumeSlowly", 1),
            bool(json.get("notifyConsumerIdsChangedEnable", True)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queues,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }


@dataclass(frozen=True, slots=True)
class GroupTable:
    """SubscriptionGroupWrapper: the content of subscriptionGroup.json."""

    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    version: DataVersion = DataVersion()
    left_out: int = field(default=0, compare=False)
    """As in `TopicTable`."""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> GroupTable:
        groups, left_out = table(json.get("subscriptionGroupTable"), str, GroupConfig.from_json)
        return cls(groups, DataVersion.from_json(json.get("dataVersion") or {}), told(left_out))

    def to_json(self) -> dict[str, Any]:
        return {
            "dataVersion": self.version.to_json(),
            "subscriptionGroupTable": {
                name: group.to_json() for name, group in self.groups.items()
            },
        }


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """ConsumerOffsetSerializeWrapper, the content of consumerOffset.json.

    `topic@group` -> queue id -> offset.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    left_out: int = field(default=0, compare=False)
    """As in `TopicTable`; counts offsets of single queues."""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> OffsetTable:
        offsets: dict[str, dict[int, int]] = {}
        left_out: list[str] = []
        for key, queues in (json.get("offsetTable") or {}).items():
            offsets[key], odd = table(queues, as_int32, as_int64)
            left_out += odd
        return cls(offsets, told(left_out))

    def to_json(self) -> dict[str, Any]:
        return {"offsetTable": {key: IntKeys(queues) for key, queues in self.offsets.items()}}


@dataclass(frozen=True, slots=True)
class DelayOffsetTable:
    """DelayOffsetSerializeWrapper, the content of delayOffset.json.

    Delay level -> next queue offset.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    left_out: int = field(default=0, compare=False)
    """As in `TopicTable`."""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> DelayOffsetTable:
        offsets, left_out = table(json.get("offsetTable"), as_int32, as_int64)
        return cls(offsets, told(left_out))

    def to_json(self) -> dict[str, Any]:
        return {"offsetTable": IntKeys(self.offsets)}


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic on one broker name."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    topic_sys_flag: int = 0

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> QueueData:
        return cls(
            str(json["brokerName"]),
            json_int(json, "readQueueNums"),
            json_int(json, "writeQueueNums"),
            json_int(json, "perm"),
            as_int32(json.get("topicSysFlag", json.get("topicSynFlag", 0))),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queues,
        }


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The addresses of one broker name, by broker id: 0 is the master, all others are slaves."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> BrokerData:
        addresses = json.get("brokerAddrs") or {}
        return cls(
            str(json.get("cluster", "")),
            str(json["brokerName"]),
            {as_int64(broker_id): str(address) for broker_id, address in addresses.items()},
        )

    def to_json(self, *, standard: bool = False) -> dict[str, Any]:
        """:param standard: quote broker ids, for strict JSON parsers."""
        in_order = sorted(self.addresses.items())
        addresses: Mapping[Any, str] = (
            {str(broker_id): address for broker_id, address in in_order}
            if standard
            else IntKeys(in_order)
        )
        return {"brokerAddrs": addresses, "brokerName": self.broker_name, "cluster": self.cluster}


@dataclass(frozen=True, slots=True)
class Route:
    """TopicRouteData: the brokers and queues of a topic."""

    brokers: tuple[BrokerData, ...] = ()
    queues: tuple[QueueData, ...] = ()
    order_conf: str | None = None

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Route:
        return cls(
            tuple(map(BrokerData.from_json, json.get("brokerDatas") or ())),
            tuple(map(QueueData.from_json, json.get("queueDatas") or ())),
            json.get("orderTopicConf"),
        )

    def to_json(self, *, standard: bool = False) -> dict[str, Any]:
        members: dict[str, Any] = {
            "brokerDatas": [broker.to_json(standard=standard) for broker in self.brokers],
            "filterServerTable": {},
        }
        if self.order_conf is not None:
            members["orderTopicConf"] = self.order_conf
        members["queueDatas"] = [queue.to_json() for queue in self.queues]
        return members


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> ClusterInfo:
        clusters = json.get("clusterAddrTable") or {}
        brokers, left_out = table(json.get("brokerAddrTable"), str, BrokerData.from_json)
        told(left_out)
        return cls(brokers, {cluster: tuple(names) for cluster, names in clusters.items()})

    def to_json(self) -> dict[str, Any]:
        return {
            "brokerAddrTable": {name: broker.to_json() for name, broker in self.brokers.items()},
            "clusterAddrTable": {cluster: list(names) for cluster, names in self.clusters.items()},
        }


@dataclass(frozen=True, slots=True)
class Registration:
    """RegisterBrokerBody: a broker's topics. `compressed_registration` has the compressed form."""

    table: TopicTable = TopicTable()
    filter_servers: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Registration:
        return cls(
            TopicTable.from_json(json.get("topicConfigSerializeWrapper") or {}),
            tuple(json.get("filterServerList") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "filterServerList": list(self.filter_servers),
            "topicConfigSerializeWrapper": self.table.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Subscription:
    """SubscriptionData: a group's subscription of one topic.

    `version` is the time when the client made it (ms; Go clients: ns).
    """

    topic: str
    expression: str = "*"
    version: int = 0
    expression_type: str = TAG
    class_filter: bool = False

    @property
    def is_by_tag(self) -> bool:
        return self.expression_type == TAG

    @property
    def tag_filter(self) -> TagFilter:
        """The filter. Tag codes are computed here: Go clients send them as text, hashed otherwise.

        See docs/protocol/json.md#subscriptions.
        """
        return tag_filter(self.expression) if self.is_by_tag else EVERYTHING

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Subscription:
        return cls(
            str(json["topic"]),
            str(json.get("subString") or "*"),
            json_long(json, "subVersion", 0),
            str(json.get("expressionType") or TAG),
            bool(json.get("classFilterMode", False)),
        )

    def to_json(self) -> dict[str, Any]:
        tag_filter = self.tag_filter
        return {
            "classFilterMode": self.class_filter,
            "codeSet": sorted(tag_filter.codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": sorted(tag_filter.tags),
            "topic": self.topic,
        }


PUSH: Final = "CONSUME_PASSIVELY"
PULL: Final = "CONSUME_ACTIVELY"
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
FROM_LAST: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class ConsumerData:
    group: str
    consume_type: str = PUSH
    message_model: str = CLUSTERING
    consume_from: str = FROM_LAST
    subscriptions: tuple[Subscription, ...] = ()
    unit_mode: bool = False

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> ConsumerData:
        return cls(
            str(json["groupName"]),
            str(json.get("consumeType") or PUSH),
            str(json.get("messageModel") or CLUSTERING),
            str(json.get("consumeFromWhere") or FROM_LAST),
            tuple(map(Subscription.from_json, json.get("subscriptionDataSet") or ())),
            bool(json.get("unitMode", False)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "consumeFromWhere": self.consume_from,
            "consumeType": self.consume_type,
            "groupName": self.group,
            "messageModel": self.message_model,
            "subscriptionDataSet": [subscription.to_json() for subscription in self.subscriptions],
            "unitMode": self.unit_mode,
        }


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """HeartbeatData: the producer and consumer groups of one client."""

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Heartbeat:
        return cls(
            str(json["clientID"]),
            tuple(str(producer["groupName"]) for producer in json.get("producerDataSet") or ()),
            tuple(map(ConsumerData.from_json, json.get("consumerDataSet") or ())),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "clientID": self.client_id,
            "consumerDataSet": [consumer.to_json() for consumer in self.consumers],
            "producerDataSet": [{"groupName": group} for group in self.producers],
        }


def queue_from_json(json: Mapping[str, Any]) -> MessageQueue:
    return MessageQueue(str(json["topic"]), str(json["brokerName"]), json_int(json, "queueId"))


def queue_to_json(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


@dataclass(frozen=True, slots=True)
class QueueLocks:
    """The body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    group: str
    client_id: str
    queues: frozenset[MessageQueue]

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> QueueLocks:
        return cls(
            str(json["consumerGroup"]),
            str(json["clientId"]),
            frozenset(map(queue_from_json, json.get("mqSet") or ())),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "consumerGroup": self.group,
            "mqSet": [queue_to_json(queue) for queue in sorted(self.queues)],
        }


def table(
    json: Mapping[str, Any] | None, key: Callable[[str], K], item: Callable[[Any], T]
) -> tuple[dict[K, T], list[str]]:
    """Decode a table; entries with numbers out of range are left out.

    One invalid topic or group, in an old state file or in a registration, must not make the others
    unusable.

    :returns: the table, and an error for each entry that was left out.
    """
    found: dict[K, T] = {}
    left_out: list[str] = []
    for name, value in (json or {}).items():
        try:
            found[key(name)] = item(value)
        except NumberError as error:
            left_out.append(f"{error} name={name[:80]!r}")
    return found, left_out


def told(left_out: list[str]) -> int:
    """Count the entries that were left out, and log them.

    One line is for all of them: a peer may send tens of thousands.
    """
    if left_out:
        log.warning("table entries left out: count=%d first=%s", len(left_out), left_out[0])
    return len(left_out)


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
