"""One of Apache's Java clients, run through our driver while the proxies listen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.golden.collection import Collection, Peer, shown
from tests.golden.stage import BINARY, Stage, say
from tests.interop import wire
from tests.interop.apache import Client, Version, run_driver, start_driver, wait_until

HELD_SECONDS = 22  # A broker answers a pull that found nothing after 15 s, looked at every 5 s.
UPDATE_TOPIC = 17


@dataclass(frozen=True)
class JavaClient:
    """A client of one version in one header form; `talk` leads it through all it can say."""

    collection: Collection
    stage: Stage
    version: Version
    options: Sequence[str]
    kind: str = "client"

    def talk(self) -> None:
        topic = f"Golden{self.version.value[0]}{'Binary' if BINARY in self.options else 'Json'}"
        group = f"Group{topic}"
        self.run(
            "produce", topic, 2, "--tag", "TagA,TagB", "--keys", "key", "--property", "colour=blue"
        )
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
        self.run(
            "produce",
            f"{topic}Tx",
            1,
            "--transaction",
            "unknown",
            "--check",
            "commit",
            "--linger",
            6000,
        )
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
        client = Peer(f"frames/{self.kind}-{self.version}", f"Apache Java client {self.version}")
        line = shown("java", *self.options, "roquet.Driver", *self.line(command, *words))
        say(f"{self.version} {line}")
        with self.stage.watch() as seen:
            yield
        seen.add_to(self.collection, client, line)

    def line(self, command: str, *words: object) -> list[str]:
        return [command, self.stage.namesrv, *map(str, words)]


def _make_topic(stage: Stage, topic: str) -> None:
    """A consumer that subscribes before the topic is there looks for it only every 30 s."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
    }
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert wire.ask(stage.broker.address, UPDATE_TOPIC, fields).code == 0
    wait_until(lambda: wire.has_topic(stage.name_server.address, topic), f"route of {topic}")
