"""What clients may make a broker keep, or go through, has an end; what it has already goes on."""

from __future__ import annotations

import logging
from typing import Any, Final

import pytest

from roquet.broker.metrics.stats import Window
from roquet.common.steps import finished
from roquet.protocol.bodies.tables import (
    ConsumerData,
    GroupConfig,
    Heartbeat,
    QueueLocks,
    Subscription,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.filters.tags import EXPRESSION_SIZE_MAX, SQL92
from roquet.protocol.headers.transactions import ROLLBACK
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import Client, World
from tests.broker.served import send, serving, started
from tests.broker.transacting import ADDRESS, TransactionProducer
from tests.simulation.simulation import Simulation

INT_MAX: Final = 2**31 - 1


def create_topic(client: Client, name: str, queues: int) -> Command:
    fields: dict[str, Any] = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "perm": 6,
    }
    fields |= {
        "writeQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    return client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)


def beat(
    client: Client, *consumers: ConsumerData, producers: tuple[str, ...] = (), client_id: str = "c"
) -> Command:
    return client.call(
        RequestCode.HEART_BEAT, dump_bytes(Heartbeat(client_id, producers, consumers).to_json())
    )


def refused(answer: Command) -> str:
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "\n" not in answer.remark
    return answer.remark


def commit(client: Client, group: str, topic: str, queue_id: int = 0) -> Command:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": 1}
    return client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


# topics


def test_a_topic_has_no_more_queues_than_a_broker_goes_through(world: World) -> None:
    client = world.client()
    remark = refused(create_topic(client, "T", INT_MAX))
    assert remark == f"queues of topic T: {INT_MAX}, allowed are 4096 (topicQueueNumsMax)"
    assert "T" not in world.topics.topics
    assert create_topic(client, "T", 4096).code == 0
    assert len(client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="T")["offsetTable"]) == 4096


def test_a_topic_of_an_older_table_keeps_its_queues_and_only_its_list_of_queues_is_refused(
    world: World,
) -> None:
    client = world.client()
    huge = TopicConfig("T", INT_MAX, INT_MAX)
    world.topics.restore(TopicTable({"T": huge}))
    world.put("T", INT_MAX - 1)
    assert (
        client.call(RequestCode.GET_MAX_OFFSET, topic="T", queueId=INT_MAX - 1).fields["offset"]
        == "1"
    )
    assert "topicQueueNumsMax" in refused(client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="T"))
    assert commit(client, "g", "T").code == 0
    assert "topicQueueNumsMax" in refused(
        client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="g")
    )
    assert create_topic(client, "T", INT_MAX).code == 0
    assert create_topic(client, "T", 8).code == 0
    assert len(client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="T")["offsetTable"]) == 8


def test_a_broker_takes_so_many_topics_and_goes_on_with_those(sim: Simulation) -> None:
    world = World(sim, topicNumsMax=20)
    client = world.client()
    count = len(world.topics.topics)
    for number in range(20 - count):
        assert create_topic(client, f"T{number}", 1).code == 0
    assert (
        refused(create_topic(client, "T", 1))
        == "topics of this broker: 21, allowed are 20 (topicNumsMax)"
    )
    assert create_topic(client, "T0", 2).code == 0
    assert world.topics.topics["T0"].write_queues == 2


def test_a_send_makes_no_topic_beyond_the_limit(sim: Simulation) -> None:
    client = Client(sim, sim.host("10.0.0.9"))
    broker = serving(started(sim, "10.0.0.1", topicNumsMax=1))
    assert "topicNumsMax" in refused(send(client, b"x", topic="T"))
    assert "topicNumsMax" in refused(send(client, b"x", topic="%RETRY%of-no-group"))
    assert "T" not in broker.parts.tables.topics.topics


def test_what_was_saved_beyond_a_limit_is_loaded_with_a_warning(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    node = started(sim, "10.0.0.1")
    client = Client(sim, sim.host("10.0.0.9"))
    assert create_topic(client, "T", 100).code == 0
    node.stop()
    with caplog.at_level(logging.WARNING):
        broker = serving(started(sim, "10.0.0.1", topicNumsMax=2, topicQueueNumsMax=16))
    assert "queues of one topic=1024 topicQueueNumsMax=16" in caplog.text
    assert "topics=9 topicNumsMax=2" in caplog.text
    assert broker.parts.tables.topics.topics["T"].write_queues == 100
    assert send(Client(sim, sim.host("10.0.0.8")), b"x").code == ResponseCode.SUCCESS


# groups and their members


def test_a_broker_takes_so_many_groups_and_says_so_to_the_next(sim: Simulation) -> None:
    world = World(sim, groupNumsMax=8)
    client = world.client()
    assert beat(client, ConsumerData("g")).code == 0
    assert beat(client, ConsumerData("h")).code == 0
    assert set(world.groups.groups) - {"g"} == set(GROUPS)
    body = dump_bytes(GroupConfig("h").to_json())
    answer = client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert refused(answer) == "groups of this broker: 9, allowed are 8 (groupNumsMax)"
    changed = dump_bytes(GroupConfig("g", retry_max_times=3).to_json())
    assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, changed).code == 0


GROUPS: Final = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)  # fmt: skip


def test_a_groups_retry_topic_has_no_more_queues_than_any_other(world: World) -> None:
    body = dump_bytes(GroupConfig("g", retry_queues=INT_MAX).to_json())
    answer = world.client().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert "topicQueueNumsMax" in refused(answer)


def test_a_heartbeat_beyond_a_limit_registers_nobody(sim: Simulation) -> None:
    world = World(
        sim, subscriptionNumsMax=3, clientGroupNumsMax=2, memberNumsMax=1, jsonBodySizeMax=4096
    )
    client, other = world.client("10.0.0.8"), world.client("10.0.0.9")
    many = ConsumerData("g", subscriptions=tuple(Subscription(f"T{number}") for number in range(4)))
    assert "subscriptionNumsMax" in refused(beat(client, many))
    assert "clientGroupNumsMax" in refused(
        beat(client, *(ConsumerData(f"g{number}") for number in range(3)))
    )
    assert "clientGroupNumsMax" in refused(beat(client, producers=("p", "q", "r")))
    assert "a name in the heartbeat has 2000 characters" in refused(
        beat(client, client_id="c" * 2000)
    )
    assert "allowed are 4096 (jsonBodySizeMax)" in refused(beat(client, producers=("p" * 4096,)))
    assert (world.consumers.groups, world.producers.groups) == ({}, {})
    assert beat(client, ConsumerData("g"), producers=("p",)).code == 0
    assert (
        refused(beat(other, ConsumerData("g"))) == "group g has 1 members already (memberNumsMax)"
    )
    assert refused(beat(other, producers=("p",))) == "group p has 1 members already (memberNumsMax)"
    assert beat(client, ConsumerData("g"), producers=("p",)).code == 0


def test_groups_of_earlier_heartbeats_of_a_client_count(sim: Simulation) -> None:
    world = World(sim, clientGroupNumsMax=2)
    client = world.client()
    assert beat(client, ConsumerData("a"), ConsumerData("b")).code == 0
    assert "clientGroupNumsMax" in refused(beat(client, ConsumerData("c")))
    assert beat(client, ConsumerData("b")).code == 0


def test_subscriptions_of_all_members_are_counted_until_they_leave(sim: Simulation) -> None:
    """One connection may be in 2000 groups that want 2000 topics each."""
    world = World(sim, memberSubscriptionNumsMax=5)
    client, other = world.client("10.0.0.8"), world.client("10.0.0.9")
    three = [Subscription(f"T{number}") for number in range(3)]
    one, two = (
        ConsumerData("g", subscriptions=tuple(three[:2])),
        ConsumerData("h", subscriptions=tuple(three)),
    )
    assert [beat(client, one).code, beat(client, two).code, beat(client, one, two).code] == [
        0,
        0,
        0,
    ]
    assert "memberSubscriptionNumsMax" in refused(
        beat(client, ConsumerData("g", subscriptions=tuple(three)))
    )
    assert "memberSubscriptionNumsMax" in refused(beat(other, one))
    assert beat(other, producers=("p",)).code == 0
    client.host.kill()
    world.sim.run_for(1)
    assert [beat(other, one).code, beat(other, two).code] == [0, 0]
    assert world.consumers.subscription_count == 5


def test_long_expressions_and_names_count_as_many_subscriptions(sim: Simulation) -> None:
    """Else a connection in 2,000 groups, 512 KiB of expressions in each, would make the broker keep
    a GiB.
    """
    world = World(sim, memberSubscriptionNumsMax=100)
    client = world.client()
    long = tuple(Subscription(f"T{number}", "e" * 8000) for number in range(3))
    codes = [
        beat(client, ConsumerData("g", subscriptions=long[:count])).code for count in (2, 3, 1, 3)
    ]
    assert codes == [0, 0, 0, 0]
    remark = refused(beat(client, ConsumerData("h", subscriptions=long[:1])))
    assert "memberSubscriptionNumsMax" in remark
    assert beat(client, ConsumerData("g")).code == 0
    assert world.consumers.subscription_count == 1
    assert beat(client, ConsumerData("h", subscriptions=long[:1])).code == 0


def test_groups_of_all_producers_are_bounded_until_they_leave(sim: Simulation) -> None:
    world = World(sim, memberSubscriptionNumsMax=10)
    clients = [world.client(f"10.0.0.{number}") for number in (7, 8)]
    groups = tuple(f"p{number}" for number in range(8))
    assert beat(clients[0], producers=groups).code == 0
    assert "groups of all producers: 16, allowed are 10" in refused(
        beat(clients[1], producers=groups)
    )
    assert "allowed are 10" in refused(beat(clients[1], producers=("p" * 1000,)))
    assert beat(clients[0], producers=groups).code == 0
    fields = {"clientID": "c", "producerGroup": "p0"}
    assert clients[0].call(RequestCode.UNREGISTER_CLIENT, **fields).code == 0
    assert beat(clients[1], producers=groups[:3]).code == 0
    clients[0].host.kill()
    world.sim.run_for(1)
    assert beat(clients[1], producers=groups).code == 0


def test_members_that_disagree_in_a_loop_do_not_fill_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = world.client("10.0.0.8"), world.client("10.0.0.9")
    for number in range(20):
        for name, client in (("one", one), ("other", other)):
            wanted = Subscription("T", f"{name}-{number}" + "e" * 8000)
            assert beat(client, ConsumerData("g", subscriptions=(wanted,))).code == 0
    lines = [line for line in caplog.messages if "different subscriptions" in line]
    assert 1 <= len(lines) <= 2
    assert max(map(len, lines)) < 1000


def test_a_heartbeat_that_shares_objects_a_million_times_is_refused_and_the_connection_goes_on(
    world: World,
) -> None:
    """90 KB; `$ref` by `$ref` they would be nine million subscriptions."""
    count = 3000
    subscription = '{"topic":"T","subString":"*"}'
    shared = ",".join(['{"$ref":"$.x[0]"}'] * count)
    groups = ",".join(['{"groupName":"g","subscriptionDataSet":{"$ref":"$.y"}}'] * (count // 3))
    body = f'{{"clientID":"c","x":[{subscription}],"y":[{shared}],"consumerDataSet":[{groups}]}}'.encode()
    client = world.client()
    answer = client.call(RequestCode.HEART_BEAT, body)
    assert "references make more than" in refused(answer)
    assert beat(client, ConsumerData("g")).code == 0


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"clientID":' + b"[" * 900 + b"]" * 900 + b"}",
        b"[" + b"1," * 100_000 + b"1]",
        b'{"clientID":' + b"9" * 100_000 + b"}",
        b'{"clientID":"c","consumerDataSet":' + b"9" * 5000 + b"}",
        b"{" + b",".join(b"%d:1" % number for number in range(30_000)) + b"}",
        b'{"clientID":"a","clientID":{}}',
        b'{"clientID":{"$ref":"$' + b".a" * 100_000 + b'"}}',
    ],
    ids=[
        "lists",
        "objects",
        "nested id",
        "array",
        "digits",
        "digits for a list",
        "dialect",
        "twice",
        "path",
    ],
)
def test_odd_json_is_answered_with_a_line_and_the_connection_goes_on(
    world: World, body: bytes
) -> None:
    client = world.client()
    for code in (
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ):
        answer = client.call(code, body)
        if answer.code:
            assert len(refused(answer)) < 1000
    assert beat(client, ConsumerData("g")).code == 0


def test_expressions_have_a_length(world: World) -> None:
    client = world.client()
    tags = ConsumerData("g", subscriptions=(Subscription("T", "x" * (EXPRESSION_SIZE_MAX + 1)),))
    assert beat(client, tags).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    sql = tuple(Subscription(f"T{number}", f"a = '{'x' * 7000}'", 1, SQL92) for number in range(5))
    answer = beat(client, ConsumerData("g", subscriptions=sql))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "expressions in the heartbeat" in str(answer.remark)
    assert beat(client, ConsumerData("g", subscriptions=sql[:4])).code == 0


def test_a_broker_keeps_so_many_filters_and_refuses_the_next_as_one_that_is_wrong(
    sim: Simulation,
) -> None:
    world = World(sim, filterNumsMax=1)
    client = world.client()
    assert (
        beat(client, ConsumerData("g", subscriptions=(Subscription("T", "a = 1", 1, SQL92),))).code
        == 0
    )
    answer = beat(client, ConsumerData("h", subscriptions=(Subscription("T", "a = 1", 1, SQL92),)))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "filterNumsMax" in str(answer.remark)
    assert (
        beat(client, ConsumerData("g", subscriptions=(Subscription("T", "a = 2", 2, SQL92),))).code
        == 0
    )


# offsets and locks


def test_offsets_are_kept_for_so_many_queues_and_go_on_there(sim: Simulation) -> None:
    world = World(sim, offsetNumsMax=2)
    client = world.client()
    assert [commit(client, "g", "T", queue_id).code for queue_id in (0, 1)] == [0, 0]
    assert (
        refused(commit(client, "g", "T", 2))
        == "offsets of groups in queues: 3, allowed are 2 (offsetNumsMax)"
    )
    assert commit(client, "g", "T", 1).code == 0
    world.on_broker(lambda: world.offsets.forget_group("g"))
    assert [commit(client, "h", "T", queue_id).code for queue_id in (0, 1)] == [0, 0]
    assert "no such name" in refused(commit(client, "g" * 2000, "T"))


def test_queues_are_locked_up_to_a_limit_and_not_a_part_of_those_asked_for(sim: Simulation) -> None:
    world = World(sim, lockNumsMax=3)
    client = world.client()

    def lock(client_id: str, queue_ids: range) -> Command:
        queues = frozenset(MessageQueue("T", "broker-a", queue_id) for queue_id in queue_ids)
        return client.call(
            RequestCode.LOCK_BATCH_MQ, dump_bytes(QueueLocks("g", client_id, queues).to_json())
        )

    assert lock("c", range(2)).code == 0
    assert refused(lock("d", range(2, 4))) == "locked queues: 4, allowed are 3 (lockNumsMax)"
    assert lock("c", range(3)).code == 0


# what is counted, and what is open


def test_open_transactions_are_bounded_and_one_that_ends_makes_room(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionNumsMax=3)
    producer = TransactionProducer(sim, node)
    first, *_ = [producer.half(b"%d" % number) for number in range(3)]
    fields = {
        "a": "P",
        "b": "T",
        "c": "TBW102",
        "d": 4,
        "e": 1,
        "f": 4,
        "g": 1,
        "h": 0,
        "j": 0,
        "k": "false",
    }
    more = {**fields, "i": "TRAN_MSG\x01true\x02PGROUP\x01P"}
    end = serving(node).store.log.end
    remark = refused(producer.call(RequestCode.SEND_MESSAGE_V2, b"x", **more))
    assert remark == "open transactions: 4, allowed are 3 (transactionNumsMax)"
    assert serving(node).store.log.end == end
    assert send(producer, b"plain").code == 0
    assert producer.end(first, ROLLBACK).code == 0
    assert producer.call(RequestCode.SEND_MESSAGE_V2, b"x", **more).code == 0


def test_statistics_by_group_are_bounded_and_sums_go_on(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(sim, statisticsNumsMax=10)
    traffic = world.measurements.traffic
    for number in range(30):
        for _ in range(2):
            traffic.given("T", f"g{number}", 0, 1, 100, 0.0)
            traffic.sent_back("T", f"g{number}")
    items = traffic.items(is_detailed=False)
    for item in "GROUP_GET_NUMS", "SNDBCK_PUT_NUMS":
        assert len(finished(items[item]())) == 10
    assert (traffic.messages, traffic.found, traffic.left_out) == (60, 60, 80)
    for _ in range(3):
        world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    assert len([line for line in caplog.messages if "statisticsNumsMax=10" in line]) == 1
