"""What administrators ask: Apache's mqadmin, command by command, and by hand what it has no command
for.
"""

from __future__ import annotations

from tests.golden.collection import Collection, Peer, shown
from tests.golden.java_client import JavaClient
from tests.golden.stage import IPV4, Stage, say
from tests.interop import wire
from tests.interop.apache import Version, mqadmin, run_driver

HAND = Peer("frames/hand-made", "tests.interop.wire")
BEFORE_STANDARD_JSON = 399  # A 4.9.3 client: the last that gets routes with bare integer keys.


def run_mqadmin(collection: Collection, stage: Stage, version: Version) -> None:
    """Its commands beside a consumer and a producer that live, so that there is something to
    tell.
    """
    topic, group, cluster = (
        f"Admin{version.value[0]}",
        f"GroupAdmin{version.value[0]}",
        "DefaultCluster",
    )
    broker = stage.broker_door.address
    sent = run_driver(version, "produce", stage.namesrv, topic, 4, "--keys", "key").check()
    commands: list[list[object]] = [
        ["updateTopic", "-c", cluster, "-t", f"{topic}Made", "-r", 4, "-w", 4],
        ["updateSubGroup", "-c", cluster, "-g", f"{group}Made"],
        ["topicList"],
        ["topicRoute", "-t", topic],
        ["topicStatus", "-t", topic],
        ["topicClusterList", "-t", topic],
        ["clusterList"],
        ["clusterList", "-m"],
        ["brokerStatus", "-b", broker],
        ["getBrokerConfig", "-b", broker],
        ["updateBrokerConfig", "-b", broker, "-k", "traceOn", "-v", "false"],
        ["consumerProgress"],
        ["consumerProgress", "-g", group],
        ["consumerConnection", "-g", group],
        ["consumerStatus", "-g", group],
        ["producerConnection", "-g", "admin-producer", "-t", topic],
        ["producer", "-b", broker],
        ["brokerConsumeStats", "-b", broker],
        ["statsAll", "-a", "-t", topic],
        ["queryMsgById", "-i", sent[0]["offsetMsgId"]],
        ["queryMsgByKey", "-t", topic, "-k", "key1"],
        ["queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", 0, "-o", 0],
        ["queryCq", "-t", topic, "-q", 0, "-i", 0, "-b", broker],
        ["printMsg", "-t", topic],
        ["resetOffsetByTime", "-g", group, "-t", topic, "-s", "now"],
        ["resetOffsetByTime", "-g", f"{group}Offline", "-t", topic, "-s", "now"],
        ["cloneGroupOffset", "-s", group, "-d", f"{group}Made", "-t", topic, "-o", "false"],
        ["wipeWritePerm", "-b", "broker-a"],
        ["addWritePerm", "-b", "broker-a"],
        ["updateKvConfig", "-s", "golden", "-k", "key", "-v", "value"],
        ["deleteKvConfig", "-s", "golden", "-k", "key"],
        ["updateOrderConf", "-t", topic, "-m", "put", "-v", "broker-a:4"],
        ["updateOrderConf", "-t", topic, "-m", "get"],
        ["getNamesrvConfig"],
        ["updateNamesrvConfig", "-k", "clusterTest", "-v", "false"],
        ["cleanExpiredCQ", "-b", broker],
        ["cleanUnusedTopic", "-b", broker],
        ["deleteTopic", "-c", cluster, "-t", f"{topic}Made"],
        ["deleteSubGroup", "-c", cluster, "-g", f"{group}Made"],
    ]
    client = JavaClient(collection, stage, version, [IPV4])
    with (
        client.running_until_stopped("consume", topic, group, 10_000, 600),
        client.running_until_stopped(
            "produce", topic, 100_000, "--group", "admin-producer", "--pause", 1000
        ),
    ):
        for words in commands:
            _admin_command(collection, stage, version, words)
        _ask_by_hand(collection, stage, topic, group)


def _admin_command(
    collection: Collection, stage: Stage, version: Version, words: list[object]
) -> None:
    line = shown("mqadmin", *words)
    say(f"{version} {line}")
    with stage.watch() as seen:
        mqadmin(*map(str, words), namesrv=stage.namesrv, version=version, java_options=[IPV4])
    seen.add_to(collection, Peer(f"frames/mqadmin-{version}", f"Apache mqadmin {version}"), line)


def _ask_by_hand(collection: Collection, stage: Stage, topic: str, group: str) -> None:
    named, grouped, one_queue = (
        {"topic": topic},
        {"topic": topic, "group": group},
        {"topic": topic, "queueId": "0"},
    )
    asked: list[tuple[str, int, dict[str, str]]] = [
        (stage.namesrv, 105, named),
        (stage.namesrv, 105, {**named, "acceptStandardJsonOnly": "true"}),
        (stage.namesrv, 106, {}),
        (stage.namesrv, 206, {}),
        (stage.namesrv, 219, {"namespace": "ORDER_TOPIC_CONFIG"}),
        (stage.namesrv, 224, {"cluster": "DefaultCluster"}),
        (stage.namesrv, 304, {}),
        (stage.namesrv, 311, {}),
        (stage.namesrv, 312, {}),
        (stage.namesrv, 313, {}),
    ]
    broker = stage.broker_door.address
    asked += [(broker, code, {}) for code in (21, 43, 45, 201, 305, 328, 329)]
    asked += [(broker, code, one_queue) for code in (30, 31, 32)]
    asked += [
        (broker, 29, {**one_queue, "timestamp": "0"}),
        (broker, 38, {"consumerGroup": group}),
        (broker, 223, grouped),
        (broker, 300, named),
        (broker, 303, grouped),
        (broker, 308, {"compareGroup": group, "topic": topic}),
        (broker, 9999, {}),
    ]
    with stage.watch() as seen:
        for address, code, fields in asked:
            say(f"hand-made {code} {fields}")
            wire.ask(address, code, fields, version=BEFORE_STANDARD_JSON)
    seen.add_to(collection, HAND, f"tests.interop.wire.ask, version {BEFORE_STANDARD_JSON}")
