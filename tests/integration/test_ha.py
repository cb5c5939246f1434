"""`roquet ha` on real processes: a slave takes its master's place under load, and the former master
follows it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.client.producer import Producer, SendResult, SendStatus
from roquet.errors import RoquetError
from tests.integration.ha_commands import done, roquet
from tests.interop.processes import LOOPBACK, SEND_MS_MAX, free_port, wait_until
from tests.interop.roquet_cluster import RoquetBroker, RoquetCluster, RoquetNameServer
from tests.interop.stored import log_records

pytestmark = pytest.mark.process

ROLE = {"role": "SYNC_MASTER"}


@pytest.fixture
def cluster() -> Iterator[RoquetCluster]:
    with RoquetCluster() as cluster:
        yield cluster


class Sending:
    """One who sends without end, and what was promised to be safe."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self.safe: dict[str, SendResult] = {}
        self.failures = 0

    async def run(self) -> None:
        number = 0
        async with Producer(self._name_server, "P", retries=0, timeout_ms=2_000) as producer:
            while True:
                number += 1
                try:
                    result = await producer.send("T", b"%d" % number)
                except RoquetError:
                    self.failures += 1
                    await asyncio.sleep(0.05)
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.safe[result.message_id] = result

    async def until_more(self, count: int) -> None:
        wanted = len(self.safe) + count
        async with asyncio.timeout(90):
            while len(self.safe) < wanted:
                await asyncio.sleep(0.02)


async def test_a_promoted_slave_has_all_that_was_acknowledged_and_takes_what_comes(
    cluster: RoquetCluster,
) -> None:
    """With a client that sends before, through and after it; the former master comes back as
    slave.
    """
    master, slave = cluster.master, cluster.slave
    cluster.create_topic("T", 2)
    await asyncio.to_thread(
        wait_until,
        lambda: "streaming" in roquet("ha", "status", "-n", cluster.namesrv).stdout,
        "the slave in sync",
    )
    sending = Sending(cluster.namesrv)
    task = asyncio.create_task(sending.run())
    try:
        await sending.until_more(200)
        before = dict(sending.safe)
        refused = await asyncio.to_thread(
            roquet, "ha", "promote", slave.address, "-n", cluster.namesrv
        )
        assert refused.returncode == 2
        assert f"the master at {master.address} answers: stop it first" in refused.stderr
        master.kill()
        before |= sending.safe
        await asyncio.to_thread(
            done, "ha", "promote", slave.address, "-n", cluster.namesrv, "--role", "SYNC_MASTER"
        )
        settings = (slave.directory / "server.conf").read_text()
        assert "brokerRole=SYNC_MASTER\n" in settings
        assert "brokerId=0\n" in settings
        said = await asyncio.to_thread(
            done, "ha", "rejoin", "-c", master.directory / "server.conf", "-n", cluster.namesrv
        )
        assert "start the broker" in said
        master.properties |= {"brokerRole": "SLAVE", "brokerId": 1}
        assert "brokerRole=SLAVE\n" in (master.directory / "server.conf").read_text()
        await asyncio.to_thread(master.start)
        await sending.until_more(200)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    stored = [
        record.properties["UNIQ_KEY"]
        for record in log_records(slave.store_dir)
        if record.topic == "T"
    ]
    assert not sending.safe.keys() - set(stored), "acknowledged, and not there"
    assert len(set(stored)) == len(stored)
    assert before.keys() <= sending.safe.keys()
    await asyncio.to_thread(
        wait_until, lambda: logs_are_equal(master, slave), "the former master has all"
    )
    for broker in (master, slave):
        broker.stop()
        done("store", "check", broker.store_dir, "-c", broker.directory / "server.conf")


def logs_are_equal(one: RoquetBroker, other: RoquetBroker) -> bool:
    return content(one.store_dir) == content(other.store_dir)


def content(store: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes().rstrip(b"\0")
        for path in sorted((store / "commitlog").iterdir())
    }


async def test_what_only_the_former_master_took_is_saved_and_cut_off(
    cluster: RoquetCluster, tmp_path: Path
) -> None:
    """It went on alone, where its clients found it and its slave did not."""
    master, slave = cluster.master, cluster.slave
    async with Producer(cluster.namesrv, "P", timeout_ms=SEND_MS_MAX) as producer:
        for number in range(3):
            assert (await producer.send("T", b"both-%d" % number)).status is SendStatus.SEND_OK
    master.kill()
    with RoquetNameServer() as elsewhere:
        master.port = free_port(-2, 1)
        master.address = f"{LOOPBACK.ip}:{master.port}"
        master.properties |= {"namesrvAddr": elsewhere.address, "listenPort": master.port}
        master.namesrv = elsewhere.address
        master.start()
        async with Producer(elsewhere.address, "P", timeout_ms=SEND_MS_MAX) as producer:
            for number in range(5):
                result = await producer.send("T", b"alone-%d" % number, keys=f"k{number}")
                assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        master.kill()
    done("ha", "promote", slave.address, "-n", cluster.namesrv, "--role", "ASYNC_MASTER")
    async with Producer(cluster.namesrv, "P", timeout_ms=SEND_MS_MAX) as producer:
        for number in range(4):
            assert (await producer.send("T", b"new-%d" % number)).status is SendStatus.SEND_OK

    settings, saved = master.directory / "server.conf", tmp_path / "saved.jsonl"
    words = ("ha", "rejoin", "-c", settings, "-n", cluster.namesrv, "-o", saved)
    before = settings.read_text()
    assert "5 records, " in done(*words, "--dry-run")
    assert (settings.read_text(), saved.exists()) == (before, False)
    assert f"the records are saved in {saved}" in done(*words)
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    assert [line["body"] for line in lines] == [f"alone-{number}" for number in range(5)]
    assert "log equals that of the master" in done(*words), (
        "a second time there is nothing to be done"
    )

    master.properties |= {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": cluster.namesrv}
    master.namesrv = cluster.namesrv
    master.start()
    wait_until(lambda: logs_are_equal(master, slave), "the former master has what the new one has")
    bodies = [record.text for record in log_records(master.store_dir) if record.topic == "T"]
    assert bodies == [
        *(f"both-{number}" for number in range(3)),
        *(f"new-{number}" for number in range(4)),
    ]
    master.stop()
    done("store", "check", master.store_dir, "-c", settings)


def test_a_former_master_is_not_touched_while_it_runs_or_without_a_new_one(
    cluster: RoquetCluster,
) -> None:
    settings = cluster.master.directory / "server.conf"
    running = roquet("ha", "rejoin", "-c", settings, "-m", cluster.slave.address, "--id", 1)
    assert (running.returncode, "is in use by another broker" in running.stderr) == (2, True)
    alone = roquet("ha", "rejoin", "-c", settings, "-n", cluster.namesrv)
    assert (alone.returncode, "no other master of roquet-a is registered" in alone.stderr) == (
        2,
        True,
    )


def test_status_shows_masters_slaves_and_what_they_have(cluster: RoquetCluster) -> None:
    shown = done("ha", "status", "-n", cluster.namesrv)
    assert cluster.master.address in shown
    (line,) = [line for line in shown.splitlines() if "streaming" in line]
    assert "yes" in line.split()
    (found,) = json.loads(done("ha", "status", "-n", cluster.namesrv, "--json"))
    master, slave = found["members"]
    assert (master["broker_id"], slave["broker_id"]) == (0, 1)
    assert master["end"] == slave["end"] > 0
    unknown = roquet("ha", "status", "-n", cluster.namesrv, "-b", "nobody")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "roquet: no broker nobody is registered at the name servers\n",
    )
    cluster.master.kill()
    cluster.slave.stop()
