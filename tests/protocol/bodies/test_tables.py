"""JSON bodies: Apache's documents are read, ours are what it writes."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.bodies.tables import (
    BrokerData,
    ClusterInfo,
    ConsumerData,
    DataVersion,
    DelayOffsetTable,
    GroupConfig,
    GroupTable,
    Heartbeat,
    OffsetTable,
    QueueData,
    QueueLocks,
    Registration,
    Route,
    Subscription,
    TopicConfig,
    TopicTable,
    parse,
    queue_key,
    queue_of_key,
)
from roquet.protocol.filters.tags import SQL92
from roquet.protocol.json.dialect import (
    ObjectKeys,
    dump_ascii,
    dump_bytes,
    dump_dialect,
    dump_indented,
    load,
)
from roquet.protocol.records.message import MessageQueue
from tests.protocol.strategies import names, registrations, text

VERSION = '{"counter":5,"timestamp":1700000000000}'
TOPIC = (
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    '"topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
)
GROUP = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"G",'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)
BROKER = '{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}'
ROUTE = (
    f'{{"brokerDatas":[{BROKER}],"filterServerTable":{{}},"queueDatas":[{{"brokerName":"broker-a","perm":6,'
    '"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)
SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    '"subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"T"}'
)
HEARTBEAT = (
    '{"clientID":"10.0.0.9@123#456","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    '"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
    f'"subscriptionDataSet":[{SUBSCRIPTION}],"unitMode":false}}],"producerDataSet":[{{"groupName":"P"}}]}}'
)
LOCKS = '{"clientId":"c","consumerGroup":"G","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'

From = Callable[[Mapping[str, Any]], Any]

APACHE: list[tuple[str, From, Any]] = [
    (VERSION, DataVersion.from_json, DataVersion(1700000000000, 5)),
    (TOPIC, TopicConfig.from_json, TopicConfig("T", 4, 4)),
    (
        f'{{"dataVersion":{VERSION},"topicConfigTable":{{"T":{TOPIC}}}}}',
        TopicTable.from_json,
        TopicTable({"T": TopicConfig("T", 4, 4)}, DataVersion(1700000000000, 5)),
    ),
    (GROUP, GroupConfig.from_json, GroupConfig("G")),
    (
        f'{{"dataVersion":{VERSION},"subscriptionGroupTable":{{"G":{GROUP}}}}}',
        GroupTable.from_json,
        GroupTable({"G": GroupConfig("G")}, DataVersion(1700000000000, 5)),
    ),
    (
        '{"offsetTable":{"T@G":{0:5,1:6}}}',
        OffsetTable.from_json,
        OffsetTable({"T@G": {0: 5, 1: 6}}),
    ),
    ('{"offsetTable":{1:5,2:6}}', DelayOffsetTable.from_json, DelayOffsetTable({1: 5, 2: 6})),
    (
        ROUTE,
        Route.from_json,
        Route(
            (BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),),
            (QueueData("broker-a", 8, 8, 6),),
        ),
    ),
    (
        f'{{"brokerAddrTable":{{"broker-a":{BROKER}}},"clusterAddrTable":{{"DefaultCluster":["broker-a"]}}}}',
        ClusterInfo.from_json,
        ClusterInfo(
            {
                "broker-a": BrokerData(
                    "DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
                )
            },
            {"DefaultCluster": ("broker-a",)},
        ),
    ),
    (
        f'{{"filterServerList":[],"topicConfigSerializeWrapper":{{"dataVersion":{VERSION},"topicConfigTable":{{}}}}}}',
        Registration.from_json,
        Registration(TopicTable({}, DataVersion(1700000000000, 5))),
    ),
    (SUBSCRIPTION, Subscription.from_json, Subscription("T", "TagA || TagB", 1700000000000)),
    (
        HEARTBEAT,
        Heartbeat.from_json,
        Heartbeat(
            "10.0.0.9@123#456",
            ("P",),
            (ConsumerData("G", subscriptions=(Subscription("T", "TagA || TagB", 1700000000000),)),),
        ),
    ),
    (LOCKS, QueueLocks.from_json, QueueLocks("G", "c", frozenset([MessageQueue("T", "b", 0)]))),
]
KINDS = [kind for _, kind, _ in APACHE]


@pytest.mark.parametrize(("text", "kind", "value"), APACHE)
def test_apaches_document_is_read_and_written_byte_for_byte(
    text: str, kind: From, value: Any
) -> None:
    assert parse(text.encode(), kind) == value
    assert dump_dialect(value.to_json()) == text.encode()


@pytest.mark.parametrize(("text", "kind", "value"), APACHE)
def test_blanks_and_unknown_members_change_nothing(text: str, kind: From, value: Any) -> None:
    document = load(text)

    assert parse(json.dumps({**document, "unknown": {"x": [1]}}, indent=2).encode(), kind) == value
    assert parse(dump_indented(value.to_json()), kind) == value


def test_a_route_for_strict_readers_has_quoted_broker_ids_in_order() -> None:
    route = Route((BrokerData("c", "b", {10: "x:1", 2: "y:1", 0: "z:1"}),), (), "b:4")

    assert dump_ascii(route.to_json()) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"z:1","2":"y:1","10":"x:1"},"brokerName":"b","cluster":"c"}],'
        b'"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[]}'
    )
    assert parse(dump_ascii(route.to_json()), Route.from_json) == route


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("{}", DataVersion.from_json, DataVersion()),
        ("{}", TopicTable.from_json, TopicTable()),
        ("{}", GroupTable.from_json, GroupTable()),
        ("{}", OffsetTable.from_json, OffsetTable()),
        ("{}", DelayOffsetTable.from_json, DelayOffsetTable()),
        ("{}", Route.from_json, Route()),
        ("{}", ClusterInfo.from_json, ClusterInfo()),
        ("{}", Registration.from_json, Registration()),
        ('{"topicName":"T"}', TopicConfig.from_json, TopicConfig("T")),
        ('{"groupName":"G"}', GroupConfig.from_json, GroupConfig("G")),
        ('{"brokerName":"b"}', BrokerData.from_json, BrokerData("", "b", {})),
        ('{"topic":"T"}', Subscription.from_json, Subscription("T")),
        ('{"groupName":"G"}', ConsumerData.from_json, ConsumerData("G")),
        ('{"clientID":"c"}', Heartbeat.from_json, Heartbeat("c")),
        ('{"topicConfigTable":null,"dataVersion":null}', TopicTable.from_json, TopicTable()),
        (
            '{"clientID":"c","consumerDataSet":null,"producerDataSet":null}',
            Heartbeat.from_json,
            Heartbeat("c"),
        ),
    ],
)
def test_missing_and_null_members_have_apaches_defaults(text: str, kind: From, value: Any) -> None:
    assert parse(text.encode(), kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[]", Route.from_json),
        ("7", Route.from_json),
        ("null", Route.from_json),
        ("", Route.from_json),
        ("{}", TopicConfig.from_json),
        ("{}", Heartbeat.from_json),
        ('{"brokerDatas":7}', Route.from_json),
        ('{"brokerDatas":[7]}', Route.from_json),
        ('{"brokerDatas":["x"]}', Route.from_json),
        ('{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"y"}}]}', Route.from_json),
        ('{"counter":"many"}', DataVersion.from_json),
        ('{"counter":[]}', DataVersion.from_json),
        ('{"offsetTable":{"T@G":7}}', OffsetTable.from_json),
        ('{"clientID":"c","producerDataSet":["P"]}', Heartbeat.from_json),
    ],
)
def test_another_document_is_refused(text: str, kind: From) -> None:
    with pytest.raises(ValueError, match=r"JSON|invalid literal"):
        parse(text.encode(), kind)


@given(st.sampled_from([text for text, _, _ in APACHE]), st.sampled_from(KINDS), st.data())
def test_any_damage_leaves_a_value_or_a_refusal(text: str, kind: From, data: st.DataObject) -> None:
    damaged = list(text)
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=3)):
        damaged[at] = data.draw(st.sampled_from(string.printable))
    with suppress(ValueError):
        parse("".join(damaged).encode(), kind)


def test_a_version_moves_on_with_every_change() -> None:
    version = DataVersion(5, 1, state_version=7)

    assert version.next(9) == DataVersion(9, 2, state_version=7)


def test_the_third_part_of_a_5x_version_is_kept_and_otherwise_unwritten() -> None:
    text = b'{"counter":1,"stateVersion":7,"timestamp":5}'

    assert dump_bytes(parse(text, DataVersion.from_json).to_json()) == text
    assert "stateVersion" not in DataVersion(5, 1).to_json()


# subscriptions


def test_codes_are_computed_from_the_tags_whatever_the_peer_sent() -> None:
    text = b'{"codeSet":["1"],"expressionType":"","subString":"TagA","subVersion":1700000000000000000,"topic":"T"}'
    subscription = parse(text, Subscription.from_json)

    assert subscription == Subscription("T", "TagA", 1700000000000000000)
    assert subscription.tag_filter.codes == {2598919}


def test_a_subscription_to_everything_has_no_tags() -> None:
    assert Subscription("T").to_json() == {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 0,
        "tagsSet": [],
        "topic": "T",
    }


def test_an_sql_subscription_has_no_tags() -> None:
    subscription = Subscription("T", "a > 5 || b", expression_type=SQL92)

    assert subscription.to_json()["tagsSet"] == []
    assert subscription.tag_filter.wants_code(1)


# registrations


@given(registrations)
def test_a_registration_is_read_as_it_was_written(registration: Registration) -> None:
    assert parse(dump_bytes(registration.to_json()), Registration.from_json) == registration


@given(
    names,
    names,
    st.frozensets(st.builds(MessageQueue, names, names, st.integers(0, 100)), max_size=4),
)
def test_queue_locks_are_read_as_they_were_written(
    group: str, client: str, queues: frozenset[MessageQueue]
) -> None:
    locks = QueueLocks(group, client, queues)

    assert parse(dump_bytes(locks.to_json()), QueueLocks.from_json) == locks


@given(st.builds(MessageQueue, text, names, st.integers(0, 100)))
def test_a_queue_is_a_key_as_apache_writes_it(queue: MessageQueue) -> None:
    key = queue_key(queue)

    assert list(json.loads(key)) == ["brokerName", "queueId", "topic"]
    assert [queue_of_key(each) for each in load(dump_dialect(ObjectKeys({key: 1})))] == [queue]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{}", "JSON: member clientID is missing"),
        (
            b'{"clientID":"c","producerDataSet":[[]]}',
            "JSON: a member has a wrong type, such as an array in place of an object",
        ),
        (
            b'{"clientID":"c","consumerDataSet":["g"]}',
            "JSON: a member has a wrong type, such as an array in place of an object",
        ),
        (b"[]", "JSON object expected, found list"),
    ],
)
def test_a_body_that_does_not_fit_is_told_of_in_words(body: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        parse(body, Heartbeat.from_json)
