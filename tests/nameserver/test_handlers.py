"""A name server on a loopback port, asked the way brokers, clients and tools ask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from roquet.common.properties import parse
from roquet.common.settings import setting_names
from roquet.common.steps import finished
from roquet.nameserver import server as server_module
from roquet.nameserver.config import NamesrvConfig
from roquet.protocol.bodies import compressed_registration
from roquet.protocol.bodies import tables as bodies
from roquet.protocol.bodies.tables import (
    ClusterInfo,
    DataVersion,
    Heartbeat,
    Registration,
    Route,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, Command, decode
from roquet.protocol.remoting.frame import FrameBuffer
from tests.nameserver.started import (
    BODY,
    MASTER,
    NOW,
    REGISTRATION,
    SLAVE,
    VERSION,
    Peer,
    Started,
    config_in,
    put,
    start,
)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    started = await start(config_in(tmp_path))
    yield started
    await started.stop()


@pytest.fixture
async def peer(started: Started) -> Peer:
    return await started.connect()


# brokers


async def test_a_registered_broker_is_found(peer: Peer) -> None:
    answer = await peer.register()

    assert (answer.code, answer.fields, answer.body) == (ResponseCode.SUCCESS, {}, b"")
    route = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert bodies.parse(route.body, Route.from_json).brokers[0].addresses == {0: "10.0.0.1:10911"}


async def test_a_slave_is_told_where_its_master_is(peer: Peer) -> None:
    assert (await peer.register(**SLAVE)).fields == {}
    await peer.register()

    answer = await peer.register(**SLAVE)

    assert answer.fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


async def test_a_compressed_registration_counts_like_a_plain_one(peer: Peer) -> None:
    body = finished(compressed_registration.written(REGISTRATION))

    answer = await peer.register(body, compressed="true", bodyCrc32=crc32(body) & 0x7FFFFFFF)

    assert answer.code == ResponseCode.SUCCESS
    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.SUCCESS


async def test_a_registration_of_an_old_release_is_a_bare_topic_table(peer: Peer) -> None:
    await peer.register(dump_bytes(REGISTRATION.table.to_json()), version=36)

    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.SUCCESS


async def test_a_registration_without_a_body_is_a_sign_of_life_without_topics(peer: Peer) -> None:
    assert (await peer.register(b"")).code == ResponseCode.SUCCESS
    assert load((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)["clusterAddrTable"] == {
        "c": ["a"]
    }


async def test_a_registration_whose_checksum_is_wrong_is_refused(peer: Peer) -> None:
    answer = await peer.register(bodyCrc32=1)

    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("compressed", ["true", "false"])
async def test_a_registration_that_cannot_be_read_is_an_error_and_changes_nothing(
    peer: Peer, compressed: str
) -> None:
    answer = await peer.register(b"\x78\xda garbage", compressed=compressed)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert load((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)["brokerAddrTable"] == {}


async def test_a_registration_without_a_mandatory_field_is_an_error(peer: Peer) -> None:
    answer = await peer.ask(RequestCode.REGISTER_BROKER, BODY, brokerName="a")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "brokerAddr is missing" in answer.remark


async def test_the_end_of_the_registering_connection_unregisters_at_once(
    started: Started, peer: Peer
) -> None:
    broker = await started.connect()
    await broker.register()

    await broker.end()

    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_that_says_goodbye_is_gone(peer: Peer) -> None:
    await peer.register()

    assert (await peer.ask(RequestCode.UNREGISTER_BROKER, **MASTER)).code == ResponseCode.SUCCESS

    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_broker_loses_its_registration_and_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SCAN_S", 0.001)
    started = await start(config_in(tmp_path))
    broker = await started.connect()
    await broker.register()

    started.clock[0] += 120_001

    await asyncio.wait_for(broker.closed.wait(), 5)
    peer = await started.connect()
    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.TOPIC_NOT_EXIST
    await started.stop()


async def test_two_addresses_that_fight_over_one_id_are_logged(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.register()
    await peer.register(brokerAddr="10.0.0.9:10911")

    assert (
        "master is replaced while it lives, stop one of the two: "
        "cluster=c name=a id=0 address=10.0.0.9:10911 before=10.0.0.1:10911" in caplog.text
    )


async def test_an_unchanged_version_counts_as_a_sign_of_life(peer: Peer) -> None:
    body = dump_bytes(VERSION.to_json())
    unknown = await peer.ask(RequestCode.QUERY_DATA_VERSION, body, **MASTER)
    await peer.register()

    same = await peer.ask(RequestCode.QUERY_DATA_VERSION, body, **MASTER)
    other = await peer.ask(
        RequestCode.QUERY_DATA_VERSION, dump_bytes(DataVersion(NOW, 2).to_json()), **MASTER
    )

    assert (unknown.fields, unknown.body) == ({"changed": "true"}, b"")
    assert (same.fields, same.body) == ({"changed": "false"}, body)
    assert (other.fields, other.body) == ({"changed": "true"}, body)


async def test_the_third_part_of_a_5x_version_is_echoed(peer: Peer) -> None:
    version = {"counter": 1, "stateVersion": 7, "timestamp": NOW}
    wrapper = {"dataVersion": version, "topicConfigTable": {}}
    await peer.register(
        dump_bytes({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
    )

    answer = await peer.ask(RequestCode.QUERY_DATA_VERSION, dump_bytes(version), **MASTER)

    assert (answer.fields, load(answer.body)) == ({"changed": "false"}, version)


# routes


async def test_a_route_is_standard_json_for_who_can_read_it_and_the_dialect_for_the_rest(
    peer: Peer,
) -> None:
    await peer.register()
    dialect = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"c"}],'
        b'"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    standard = dialect.replace(b"{0:", b'{"0":')

    async def route(version: int, **fields: Any) -> bytes:
        return (
            await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, topic="T", **fields)
        ).body

    assert await route(409) == standard
    assert await route(401) == standard
    assert await route(400) == dialect
    assert await route(317, acceptStandardJsonOnly="true") == standard


async def test_a_route_for_strict_readers_is_ascii(peer: Peer) -> None:
    await peer.register(clusterName="集群")

    body = (await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")).body

    assert body.isascii()
    assert json.loads(body)["brokerDatas"][0]["cluster"] == "集群"


async def test_a_request_in_the_binary_form_is_answered_in_it(peer: Peer) -> None:
    answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header_type=BINARY, topic="nowhere")

    assert answer.header_type == BINARY
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_an_unknown_request_is_answered_with_not_supported(peer: Peer) -> None:
    assert (await peer.ask(901)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_the_cluster_table_keeps_bare_broker_ids_for_everyone(peer: Peer) -> None:
    await peer.register()

    assert (await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body == (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["a"]}}'
    )


async def test_topics_are_listed(peer: Peer) -> None:
    flags = {"plain": 0, "unit": 1, "subscribed": 2, "both": 3}
    table = TopicTable(
        {name: TopicConfig(name, sys_flag=flag) for name, flag in flags.items()}, VERSION
    )
    await peer.register(dump_bytes(Registration(table).to_json()))

    async def listed(code: int, **fields: Any) -> Any:
        return load((await peer.ask(code, **fields)).body)

    assert await listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {
        "topicList": list(flags)
    }
    assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c") == {
        "topicList": list(flags)
    }
    assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="d") == {"topicList": []}
    assert await listed(RequestCode.GET_UNIT_TOPIC_LIST) == {"topicList": ["unit", "both"]}
    assert await listed(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {
        "topicList": ["subscribed", "both"]
    }
    assert await listed(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {
        "topicList": ["subscribed"]
    }
    assert await listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {
        "brokerAddr": "10.0.0.1:10911",
        "topicList": ["c", "a"],
    }


# what tools change


async def test_write_permission_is_wiped_and_added_by_broker_name(peer: Peer) -> None:
    await peer.register()

    async def permission() -> int:
        route = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        return bodies.parse(route.body, Route.from_json).queues[0].perm

    assert (await peer.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")).fields == {
        "wipeTopicCount": "1"
    }
    assert await permission() == 4
    assert (await peer.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")).fields == {
        "addTopicCount": "1"
    }
    assert await permission() == 6


async def test_a_deleted_topic_has_no_route(peer: Peer) -> None:
    await peer.register()

    await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="elsewhere")
    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.SUCCESS

    await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T")
    assert (
        await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ).code == ResponseCode.TOPIC_NOT_EXIST


async def test_key_values_are_put_found_and_deleted(peer: Peer) -> None:
    order: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    await put(peer)

    assert (await peer.ask(RequestCode.GET_KV_CONFIG, **order)).fields == {"value": "a:4"}
    table = await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
    assert table.body == b'{"table":{"T":"a:4"}}'

    assert (await peer.ask(RequestCode.DELETE_KV_CONFIG, **order)).code == ResponseCode.SUCCESS

    assert (await peer.ask(RequestCode.GET_KV_CONFIG, **order)).code == ResponseCode.QUERY_NOT_FOUND
    gone = await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
    assert gone.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_registering_broker_is_told_the_ordered_topics(peer: Peer) -> None:
    await put(peer)

    assert (await peer.register()).body == b'{"table":{"T":"a:4"}}'


async def test_a_route_carries_the_order_only_where_that_is_enabled(
    tmp_path: Path, peer: Peer
) -> None:
    ordering = await start(config_in(tmp_path / "ordering", order_message_enable=True))
    other = await ordering.connect()
    for asked in (peer, other):
        await put(asked)
        await asked.register()

    plain = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    ordered = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    await ordering.stop()

    assert "orderTopicConf" not in load(plain.body)
    assert load(ordered.body)["orderTopicConf"] == "a:4"


# its own configuration


async def test_the_configuration_is_told_as_properties(peer: Peer) -> None:
    answer = await peer.ask(RequestCode.GET_NAMESRV_CONFIG)

    settings = dict(parse(answer.body.decode()).pairs)
    assert settings["orderMessageEnable"] == "false"
    assert settings["bindAddress"] == "127.0.0.1"


async def test_a_changed_setting_counts_at_once_and_is_kept(tmp_path: Path, peer: Peer) -> None:
    await put(peer)
    await peer.register()

    answer = await peer.ask(
        RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\nnoSuchSetting=1\n"
    )

    assert answer.code == ResponseCode.SUCCESS
    route = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert load(route.body)["orderTopicConf"] == "a:4"
    assert "orderMessageEnable=true\n" in (tmp_path / "namesrv.properties").read_text()


async def test_the_operators_file_keeps_its_comments_and_gets_only_what_was_changed(
    tmp_path: Path, peer: Peer
) -> None:
    file = tmp_path / "namesrv.properties"
    before = "# ours\norderMessageEnable = false\n\n! the rest\nproductEnvName=blue\n"
    file.write_text(before)

    answer = await peer.ask(
        RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\nnoSuchSetting=1\n"
    )

    assert answer.code == ResponseCode.SUCCESS
    assert file.read_text() == before.replace(
        "orderMessageEnable = false", "orderMessageEnable=true"
    )


NEVER = sorted(
    setting_names(NamesrvConfig) - {"orderMessageEnable", "productEnvName", "clusterTest"}
)
"""Files, ports, and all that bounds what peers may take."""


@pytest.mark.parametrize("name", NEVER)
async def test_a_protected_setting_cannot_be_changed_from_afar(peer: Peer, name: str) -> None:
    answer = await peer.ask(
        RequestCode.UPDATE_NAMESRV_CONFIG, f"{name}=1\norderMessageEnable=true".encode()
    )

    assert answer.code == ResponseCode.NO_PERMISSION
    assert f"{name}: to be changed in the name server's configuration file" in str(answer.remark)
    assert b"orderMessageEnable=false" in (await peer.ask(RequestCode.GET_NAMESRV_CONFIG)).body
    assert {"answerBytesMax", "connectionsMax", "listenPort", "kvConfigPath"} <= set(NEVER)


async def test_an_operator_may_forbid_what_else_could_be_changed(tmp_path: Path) -> None:
    server = await start(config_in(tmp_path, config_black_list="clusterTest; orderMessageEnable"))
    peer = await server.connect()
    refused = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
    taken = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"productEnvName=green")
    await server.stop()

    assert (refused.code, taken.code) == (ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS)


async def test_a_setting_that_makes_no_sense_is_refused_with_what_is_allowed(peer: Peer) -> None:
    answer = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=perhaps")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "allowed is true or false" in answer.remark


# as Apache's name server answered the same questions


GOLDEN = Path(__file__).parents[1] / "golden"
FRAMES = GOLDEN / "frames"
OF_BROKER = FRAMES / "broker-4.9.7"
ADMIN_CODES = (100, 101, 102, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 327)
SETTINGS_OF_OURS = {
    *(
        "bindAddress",
        "configBlackList",
        "connectionsMax",
        "connectionsPerAddressMax",
        "partialRequestTimeout",
    ),
    "loopDelayWarningMs",
    *(
        "answerBytesMax",
        "answerBytesPerConnectionMax",
        "requestBytesMax",
        "requestBytesPerConnectionMax",
    ),
}
SETTINGS_OF_NETTY = {
    *("serverSocketBacklog", "serverSocketRcvBufSize", "serverSocketSndBufSize"),
    *("serverAsyncSemaphoreValue", "serverOnewaySemaphoreValue", "serverCallbackExecutorThreads"),
    *("serverSelectorThreads", "serverWorkerThreads", "serverPooledByteBufAllocatorEnable"),
    *("writeBufferHighWaterMark", "writeBufferLowWaterMark", "useEpollNativeSelector"),
}


def frame(path: Path) -> Command:
    (content,) = FrameBuffer().feed(path.read_bytes())
    return decode(content)


def answer_to(asked: Path) -> Command:
    return frame(asked.with_name(asked.name.replace(".request.", ".response.")))


def assert_same(answer: Command, expected: Command) -> None:
    assert (answer.code, answer.fields, answer.body) == (
        expected.code,
        expected.fields,
        expected.body,
    )
    assert (answer.header_type, answer.flag) == (expected.header_type, expected.flag)


def recorded(pattern: str) -> list[Any]:
    return [
        pytest.param(path, id=f"{path.parent.name}/{path.stem}")
        for path in sorted(FRAMES.glob(pattern))
    ]


def registered_at_start() -> dict[str, TopicConfig]:
    """The topics that Apache's broker registered when it started."""
    body = frame(OF_BROKER / "103-register-broker-json.request.bin").body
    return dict(bodies.parse(body, Registration.from_json).table.topics)


def told_by(asked: Command, answer: Command) -> tuple[str, dict[str, TopicConfig]]:
    """Where the broker of a capture was to be found, its proxy, and the topic that was asked for,
    if there was one.
    """
    if answer.code != ResponseCode.SUCCESS:
        return MASTER["brokerAddr"], {}
    if asked.code == RequestCode.GET_BROKER_CLUSTER_INFO:
        (broker,) = bodies.parse(answer.body, ClusterInfo.from_json).brokers.values()
        return broker.addresses[0], {}
    route = bodies.parse(answer.body, Route.from_json)
    (broker,), (queues,) = route.brokers, route.queues
    topic = TopicConfig(asked.fields["topic"], queues.read_queues, queues.write_queues, queues.perm)
    return broker.addresses[0], {topic.name: topic}


async def register_recorded(peer: Peer, address: str, topics: Mapping[str, TopicConfig]) -> None:
    body = dump_bytes(Registration(TopicTable(topics, VERSION)).to_json())
    names: dict[str, Any] = dict(frame(OF_BROKER / "103-register-broker-json.request.bin").fields)
    answer = await peer.register(body, **{**names, "brokerAddr": address, "bodyCrc32": 0})
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("asked", recorded("*/10[56]-*.request.bin"))
async def test_a_recorded_question_gets_the_recorded_answer(peer: Peer, asked: Path) -> None:
    """A topic of the start is registered as it was then, whatever the answer says of it; one made
    later as told.
    """
    expected = answer_to(asked)
    address, made_later = told_by(frame(asked), expected)
    await register_recorded(peer, address, made_later | registered_at_start())

    answer = await peer.connection.calls.call(frame(asked), 5000)

    assert_same(answer, expected)
    without_help_page = expected.remark and expected.remark.partition("\n")[0]
    assert answer.remark == without_help_page


@pytest.mark.parametrize("sent", recorded("broker-4.9.7/103-*.request.bin"))
async def test_a_recorded_registration_counts(peer: Peer, sent: Path) -> None:
    request = frame(sent)
    twin = frame(sent.with_name(sent.name.replace("-compressed", "")))
    topics = load(twin.body)["topicConfigSerializeWrapper"]["topicConfigTable"]

    if request.is_one_way:
        peer.connection.calls.notify(request)
    else:
        assert_same(await peer.connection.calls.call(request, 5000), answer_to(sent))

    listed = load((await peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)[
        "topicList"
    ]
    assert set(listed) == topics.keys()
    for name, topic in topics.items():
        route = bodies.parse(
            (await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name)).body, Route.from_json
        )
        assert route.brokers[0].addresses == {0: request.fields["brokerAddr"]}
        queues = route.queues[0]
        told = (queues.read_queues, queues.write_queues, queues.perm, queues.topic_sys_flag)
        assert told == tuple(
            topic[name] for name in ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
        )


@pytest.mark.parametrize("asked", recorded("broker-4.9.7/322-*.request.bin"))
async def test_a_recorded_version_is_the_registered_one(peer: Peer, asked: Path) -> None:
    request = frame(asked)
    version = bodies.parse(request.body, DataVersion.from_json)
    names: dict[str, Any] = dict(request.fields)
    await peer.register(dump_bytes(Registration(TopicTable({}, version)).to_json()), **names)

    assert_same(await peer.connection.calls.call(request, 5000), answer_to(asked))


@pytest.mark.parametrize("asked", recorded("broker-4.9.7/104-*.request.bin"))
async def test_a_recorded_goodbye_counts(peer: Peer, asked: Path) -> None:
    came = await peer.connection.calls.call(
        frame(asked.with_name(asked.name.replace("104-un", "103-"))), 5000
    )
    assert came.code == ResponseCode.SUCCESS

    assert_same(await peer.connection.calls.call(frame(asked), 5000), answer_to(asked))

    assert load((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)["brokerAddrTable"] == {}


def listed_topics(asked: Path) -> set[str]:
    """What Apache's name server listed in the same session; what the session's own consumers made
    came later.
    """
    topics = set(
        load(frame(asked.with_name("206-get-all-topics-json.response.bin")).body)["topicList"]
    )
    if frame(asked).code in (
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    ):
        for heartbeat in asked.parent.glob("34-heartbeat-consumer-*.request.bin"):
            consumers = bodies.parse(frame(heartbeat).body, Heartbeat.from_json).consumers
            topics |= {f"%RETRY%{consumer.group}" for consumer in consumers}
    return topics


@pytest.mark.parametrize(
    "asked", [param for code in ADMIN_CODES for param in recorded(f"*/{code}-*.request.bin")]
)
async def test_a_recorded_administrator_gets_the_recorded_answer(peer: Peer, asked: Path) -> None:
    request, expected = frame(asked), answer_to(asked)
    clusters = asked.with_name("106-get-cluster-info-json.request.bin")
    address, _ = told_by(frame(clusters), answer_to(clusters))
    await register_recorded(
        peer, address, {name: TopicConfig(name, 4, 4) for name in listed_topics(asked)}
    )
    await put(peer, "broker-a:4", topic=request.fields.get("key", "Admin4"))

    answer = await peer.connection.calls.call(request, 5000)

    assert (answer.code, answer.remark, answer.fields) == (
        expected.code,
        expected.remark,
        expected.fields,
    )
    assert answer.header_type == expected.header_type
    if request.code == RequestCode.GET_NAMESRV_CONFIG:
        ours, apaches = (
            dict(parse(side.body.decode()).pairs).keys() for side in (answer, expected)
        )
        assert (ours - apaches, apaches - ours) == (SETTINGS_OF_OURS, SETTINGS_OF_NETTY)
    elif expected.body:
        assert in_any_order(load(answer.body)) == in_any_order(load(expected.body))
    else:
        assert answer.body == b""


def in_any_order(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: sorted(value) if name == "topicList" else value for name, value in document.items()
    }


async def test_a_recorded_slave_is_told_what_it_was_told(peer: Peer) -> None:
    frames = GOLDEN / "ha" / "frames"
    expected = frame(frames / "103-register-broker-slave-json.response.bin")
    addresses: dict[str, Any] = {
        "brokerAddr": expected.fields["masterAddr"],
        "haServerAddr": expected.fields["haServerAddr"],
    }
    await peer.register(clusterName="DefaultCluster", brokerName="broker-a", **addresses)

    answer = await peer.connection.calls.call(
        frame(frames / "103-register-broker-slave-json.request.bin"), 5000
    )
    gone = await peer.connection.calls.call(
        frame(frames / "104-unregister-broker-json.request.bin"), 5000
    )

    assert (answer.code, answer.fields, answer.body) == (
        expected.code,
        expected.fields,
        expected.body,
    )
    assert gone.code == ResponseCode.SUCCESS
