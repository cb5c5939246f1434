"""What Apache's clients, mqadmin, broker and name server say to each other: a file per kind of request and answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.golden.collection import Collection, Peer, shown
from tests.golden.stage import BINARY, BROKER, IPV4, NAME_SERVER, Seen, Stage, say
from tests.interop import wire
from tests.interop.apache import Client, Version, go_client, mqadmin, run_driver, start_driver, wait_until

BROKER_PROPERTIES: dict[str, str | int] = {
    "forceRegister": "false",  # It then asks for the stored data version before it registers.
    "transactionTimeOut": 500,
    "transactionCheckInterval": 2000,
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": 1 << 24,
}
HELD_SECONDS = 22  # A broker answers a pull that found nothing after 15 s, looked at every 5 s.
UPDATE_TOPIC = 17
GO = Peer("frames/client-go-2.1.2", "Apache Go client 2.1.2")


def capture(collection: Collection) -> None:
    collection.clear("frames")
    with Stage(BROKER_PROPERTIES) as stage:
        for version in Version:
            for options in ([IPV4], [IPV4, BINARY]):
                JavaClient(collection, stage, version, options).talk()
        _go(collection, stage)
        for version in Version:
            _mqadmin(collection, stage, version)
        stage.broker.stop()
        _add_registrations(collection, stage, "json")
    with Stage(BROKER_PROPERTIES, [BINARY]) as stage:
        stage.broker.stop()
        _add_registrations(collection, stage, "binary")


@dataclass(frozen=True)
class JavaClient:
    """One Java client in one header form, led through everything it can say."""

    collection: Collection
    stage: Stage
    version: Version
    options: list[str]

    def talk(self) -> None:
        topic = f"Golden{self.version.value[0]}{'Binary' if BINARY in self.options else 'Json'}"
        group = f"Group{topic}"
        self.run("produce", topic, 2, "--tag", "TagA,TagB", "--keys", "key", "--property", "colour=blue")
        self.run("produce", topic, 3, "--batch", 3, "--tag", "TagA")
        self.run("produce", topic, 1, "--oneway")
        self.run("produce", topic, 1, "--delay", 1)
        with self.running("consume", topic, group, 1000, HELD_SECONDS):
            self.run("produce", topic, 1, "--body", "late-")
        self.run("consume", topic, f"{group}Retry", 1000, 5, "--fail", 1)
        self.run("consume", topic, f"{group}Orderly", 5, 10, "--orderly")
        self.run("consume", topic, f"{group}Sql", 2, 10, "--sql", "colour = 'blue'")
        self.run("lite", topic, f"{group}Lite", 5, 10)
        for verdict in ("commit", "rollback"):
            self.run("produce", f"{topic}Tx", 1, "--transaction", verdict)
        self.run("produce", f"{topic}Tx", 1, "--transaction", "unknown", "--check", "commit", "--linger", 6000)
        _make_topic(self.stage, f"{topic}Ask")
        with self.running("reply", f"{topic}Ask", f"{group}Ask", 1, 30):
            self.run("request", f"{topic}Ask", 1)
        self.run("offsets", topic, "--timestamp", 1_700_000_000_000)
        self.run("pull", topic, 0, 0, 8)
        self.run("pull", topic, 0, 1_000_000, 8)
        key = run_driver(self.version, "query", self.stage.namesrv, topic, "key1").check()[0]
        self.run("query", topic, "key1")
        self.run("view", topic, key["offsetMsgId"])

    def run(self, command: str, *words: object) -> None:
        with self.watched(command, *words):
            run_driver(self.version, *self.line(command, *words), java_options=self.options)

    @contextmanager
    def running(self, command: str, *words: object) -> Iterator[Client]:
        """The command beside what the block does, to its own end."""
        with self.watched(command, *words), self.start(command, *words) as client:
            client.wait_started()
            yield client
            client.finish()

    @contextmanager
    def running_until_stopped(self, command: str, *words: object) -> Iterator[Client]:
        """The command beside what the block does, stopped at its end."""
        with self.watched(command, *words), self.start(command, *words) as client:
            client.wait_lines(1)
            yield client
            client.stop()

    def start(self, command: str, *words: object) -> Client:
        return start_driver(self.version, *self.line(command, *words), java_options=self.options)

    @contextmanager
    def watched(self, command: str, *words: object) -> Iterator[None]:
        client = Peer(f"frames/client-{self.version}", f"Apache Java client {self.version}")
        line = shown("java", *self.options, "roquet.Driver", *self.line(command, *words))
        say(f"{self.version} {line}")
        with self.stage.watch() as seen:
            yield
        _add(self.collection, client, line, seen)

    def line(self, command: str, *words: object) -> list[str]:
        return [command, self.stage.namesrv, *map(str, words)]


def _make_topic(stage: Stage, topic: str) -> None:
    """A consumer that subscribes before the topic is there looks for it only every 30 s."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert wire.ask(stage.broker.address, UPDATE_TOPIC, fields).code == 0
    wait_until(lambda: wire.has_topic(stage.name_server.address, topic), f"route of {topic}")


def _go(collection: Collection, stage: Stage) -> None:
    for command, *words in (
        ("produce", "GoldenGo", 2, "--tag", "TagA,TagB", "--keys", "key"),
        ("produce", "GoldenGo", 3, "--batch", 3),
        ("produce", "GoldenGo", 1, "--oneway"),
        ("consume", "GoldenGo", "GroupGo", 6, 20),
        ("consume", "GoldenGo", "GroupGoRetry", 100, 3, "--fail", 1),
        ("consume", "GoldenGo", "GroupGoOrderly", 6, 20, "--orderly"),
        ("transact", "GoldenGoTx", 1, "--transaction", "commit"),
        ("transact", "GoldenGoTx", 1, "--transaction", "rollback"),
    ):
        line = shown("driver", command, stage.namesrv, *words)
        say(f"go {line}")
        with stage.watch() as seen:
            go_client(command, stage.namesrv, *map(str, words))
        _add(collection, GO, line, seen)


def _mqadmin(collection: Collection, stage: Stage, version: Version) -> None:
    """Its commands beside a consumer and a producer that live, so that there is something to tell."""
    topic, group, cluster = f"Admin{version.value[0]}", f"GroupAdmin{version.value[0]}", "DefaultCluster"
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
        ["getConsumerStatus", "-g", group, "-t", topic],
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
        client.running_until_stopped("produce", topic, 100_000, "--group", "admin-producer", "--pause", 1000),
    ):
        for words in commands:
            _admin_command(collection, stage, version, words)


def _admin_command(collection: Collection, stage: Stage, version: Version, words: list[object]) -> None:
    line = shown("mqadmin", *words)
    say(f"{version} {line}")
    with stage.watch() as seen:
        mqadmin(*map(str, words), namesrv=stage.namesrv, version=version, java_options=[IPV4])
    _add(collection, Peer(f"frames/mqadmin-{version}", f"Apache mqadmin {version}"), line, seen)


def _add(collection: Collection, caller: Peer, line: str, seen: Seen) -> None:
    collection.add_exchanges(caller, NAME_SERVER, line, seen.at_name_server)
    collection.add_exchanges(caller, BROKER, line, seen.at_broker)


def _add_registrations(collection: Collection, stage: Stage, form: str) -> None:
    line = f"BrokerStartup, {form} headers, {shown(*(f'{k}={v}' for k, v in BROKER_PROPERTIES.items()))}, then SIGTERM"
    collection.add_exchanges(BROKER, NAME_SERVER, line, stage.broker_road.connections)
