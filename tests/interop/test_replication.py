"""Replication with one side Apache's: the two commit logs are the same bytes, and one can stand in for the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.interop import wire
from tests.interop.apache import (
    ApacheBroker,
    ApacheNameServer,
    Version,
    free_port,
    require_java,
    run_driver,
    wait_until,
)
from tests.interop.processes import Program
from tests.interop.stored import written_files

pytestmark = pytest.mark.interop

HOST = "127.0.0.1"
FILE_SIZE = 64 * 1024
PATIENCE_MS = 20_000
"""On a busy host the other side's start-up takes more than the usual three seconds from its first message."""
PROPERTIES = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20_000,
    "slaveTimeout": PATIENCE_MS,
}
LARGE = ("--size", 1_000, "--compress-over", 100_000)
CONSUME_SECONDS = 60


class RoquetBroker(Program):
    """Our broker as a process, with the same surface as `ApacheBroker`."""

    def __init__(self, namesrv: str, *, role: str, broker_id: int = 0) -> None:
        super().__init__(f"roquet-broker-{broker_id}")
        self.namesrv = namesrv
        self.port = free_port(-2, 1)
        self.address = f"{HOST}:{self.port}"
        self.store_dir = self.directory / "store"
        self._properties = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": broker_id,
            "brokerRole": role,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": self.port,
            "namesrvAddr": namesrv,
            "storePathRootDir": self.store_dir,
            "diskMaxUsedSpaceRatio": 95,
            **PROPERTIES,
        }

    def start(self) -> None:
        settings = self.directory / "broker.conf"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        self.launch([sys.executable, "-m", "roquet.cli.main", "broker", "-c", str(settings)])
        self.wait_ready(lambda: wire.has_broker(self.namesrv, self.address), f"{self.address} is listed")

    def __enter__(self) -> RoquetBroker:
        self.start()
        return self


@pytest.fixture(scope="module")
def name_server() -> Iterator[ApacheNameServer]:
    require_java()
    with ApacheNameServer() as server:
        yield server


Broker = ApacheBroker | RoquetBroker


def produce(broker: Broker, topic: str, count: int) -> None:
    """Every answer says that a slave has the message."""
    sent = run_driver(Version.V4, "produce", broker.namesrv, topic, count, *LARGE, "--timeout", PATIENCE_MS)
    assert {line["sendStatus"] for line in sent.check()} == {"SEND_OK"}


def await_same_log(first: Broker, second: Broker, files_min: int) -> None:
    logs = [broker.store_dir / "commitlog" for broker in (first, second)]
    wait_until(lambda: written_files(logs[0]) == written_files(logs[1]), "equal commit logs", timeout_s=120)
    assert len(written_files(logs[0])) >= files_min


def await_slave(master: Broker, topic: str) -> None:
    """Sends are refused as long as no slave is there; the first that is not shows that it follows."""

    def is_replicated() -> bool:
        sent = run_driver(Version.V4, "produce", master.namesrv, topic, 1, "--retry", 0)
        return [line.get("sendStatus") for line in sent.lines] == ["SEND_OK"]

    wait_until(is_replicated, "a send that a slave acknowledged", timeout_s=120)


def test_an_apache_slave_has_the_log_of_our_master_and_stands_in_for_it(name_server: ApacheNameServer) -> None:
    namesrv = name_server.address
    with (
        RoquetBroker(namesrv, role="SYNC_MASTER") as master,
        ApacheBroker(namesrv, role="SLAVE", broker_id=1, properties=PROPERTIES) as slave,
    ):
        copied_across_a_crash_of_the_slave(master, slave, "BehindOurs")
        stands_in(slave, master, "BehindOurs")


def test_our_slave_has_the_log_of_an_apache_master_and_stands_in_for_it(name_server: ApacheNameServer) -> None:
    namesrv = name_server.address
    with (
        ApacheBroker(namesrv, role="SYNC_MASTER", properties=PROPERTIES) as master,
        RoquetBroker(namesrv, role="SLAVE", broker_id=1) as slave,
    ):
        copied_across_a_crash_of_the_slave(master, slave, "BehindApaches")
        stands_in(slave, master, "BehindApaches")


def test_a_5x_slave_has_the_log_of_our_master(name_server: ApacheNameServer) -> None:
    namesrv, version = name_server.address, Version.V5
    with (
        RoquetBroker(namesrv, role="SYNC_MASTER") as master,
        ApacheBroker(namesrv, role="SLAVE", broker_id=1, version=version, properties=PROPERTIES) as slave,
    ):
        copied_across_a_crash_of_the_slave(master, slave, "5xBehindOurs")


def test_our_slave_has_the_log_of_a_5x_master(name_server: ApacheNameServer) -> None:
    namesrv, version = name_server.address, Version.V5
    with (
        ApacheBroker(namesrv, role="SYNC_MASTER", version=version, properties=PROPERTIES) as master,
        RoquetBroker(namesrv, role="SLAVE", broker_id=1) as slave,
    ):
        copied_across_a_crash_of_the_slave(master, slave, "Behind5x")


def copied_across_a_crash_of_the_slave(master: Broker, slave: Broker, topic: str) -> None:
    await_slave(master, topic)
    produce(master, topic, 150)
    await_same_log(master, slave, files_min=3)
    slave.kill()
    run_driver(Version.V4, "produce", master.namesrv, topic, 50, *LARGE)
    slave.start()
    await_same_log(master, slave, files_min=4)


def stands_in(slave: Broker, master: Broker, topic: str) -> None:
    """With the master dead, consumers get every message from the slave."""
    topics = slave.store_dir / "config" / "topics.json"
    wait_until(lambda: topics.exists() and topic in topics.read_text(), "the slave's copy of the topics")
    master.kill()
    got = run_driver(Version.V4, "consume", master.namesrv, topic, f"G-{topic}", 200, CONSUME_SECONDS)
    assert len({line["msgId"] for line in got.check()}) >= 200
