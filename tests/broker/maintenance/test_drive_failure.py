"""A sync that fails is the last one: nothing more is acknowledged, and the broker ends or only
serves reads.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.broker.maintenance.drive_failure import HAND_OVER_S
from roquet.errors import CallTimeout
from roquet.protocol.bodies.tables import Route, parse
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.records.message import Permission
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.broker.transacting import TransactionProducer
from tests.simulation.nodes import NAME_SERVER_PORT, RESTART_S, BrokerNode, NameServerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import bodies_in, records_in

MASTER, SLAVE, NAMES = "10.0.0.1", "10.0.0.2", "10.0.0.5"


def client_of(sim: Simulation, address: str = MASTER, host: str = "10.0.0.9") -> Client:
    return Client(sim, sim.host(host), f"{address}:10911")


def sent(client: Client, *bodies: bytes) -> list[int]:
    return [send(client, body).code for body in bodies]


def lives_of(node: BrokerNode) -> Callable[[], bool]:
    """Whether the broker's process of now still runs."""
    process = node.host.process
    return lambda: node.host.process is process


def critical(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def test_a_send_whose_sync_fails_is_refused_and_the_broker_ends(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, with a code that lets producers try another broker; a second sync would say that all
    is well.
    """
    node = started(sim, MASTER, flushDiskType="SYNC_FLUSH")
    client, lives = client_of(sim), lives_of(node)
    assert sent(client, b"0", b"1") == [ResponseCode.SUCCESS] * 2
    node.host.drive.refuse("sync", errno.EIO)
    began_s = sim.now_s
    answer = send(client, b"lost")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark is not None
    assert "the message may be lost, the disk has failed: [Errno 5]" in answer.remark
    assert sim.now_s - began_s < 4, "not when its time is over"
    sim.run_until(lambda: not lives(), 30)
    (line,) = critical(caplog)
    assert "file=/store/commitlog/" in line
    assert "errno=EIO action=stop" in line
    assert "check the system's log and the drive, then restart" in line
    sim.run_until(lambda: node.broker is not None, RESTART_S + 10)
    assert {b"0", b"1"} <= set(bodies_in(serving(node).store, "T"))
    assert sent(client, b"2") == [ResponseCode.SUCCESS]
    node.host.crash()
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)
    assert {b"0", b"1", b"2"} <= set(bodies_in(serving(node).store, "T"))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_broker_without_descriptors_for_its_syncs_says_so_seldom_and_goes_on(
    sim: Simulation, caplog: pytest.LogCaptureFixture, flush: str
) -> None:
    """The drive was not asked, so nothing is lost: it is tried again, each second or more often."""
    node = started(sim, MASTER, flushDiskType=flush)
    client = client_of(sim)
    assert sent(client, b"0") == [ResponseCode.SUCCESS]
    node.host.drive.refuse("sync", errno.EMFILE, 1_000_000)
    with suppress(CallTimeout):
        send(client, b"1")
    sim.run_for(50)
    assert serving(node).store.log.flushed_to < serving(node).store.log.end
    assert len([line for line in caplog.messages if "commit log not flushed" in line]) == 1
    node.host.drive.refuse("sync", errno.EMFILE, 0)
    sim.run_for(12)
    assert serving(node).store.log.flushed_to == serving(node).store.log.end
    assert not critical(caplog)


def test_a_log_whose_file_was_deleted_under_the_broker_acknowledges_nothing(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    node = started(sim, MASTER, flushDiskType="SYNC_FLUSH")
    client, lives = client_of(sim), lives_of(node)
    assert sent(client, b"0", b"1") == [ResponseCode.SUCCESS] * 2
    node.host.drive.remove(Path(f"/store/commitlog/{0:020}"))
    answer = send(client, b"lost")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "a file of the store was deleted or replaced while it was in use" in str(answer.remark)
    sim.run_until(lambda: not lives(), 30)
    (line,) = critical(caplog)
    assert "file=/store/commitlog/" in line
    assert "find what deletes or replaces files of the store, restore this file" in line
    assert (
        len(
            [line for line in caplog.messages if line.startswith("a file of the store was deleted")]
        )
        == 1
    )


def test_messages_that_wait_for_nothing_but_the_disk_end_with_it_too(sim: Simulation) -> None:
    """ASYNC_FLUSH: who was answered cannot be told any more, but nobody is answered as if nothing
    had happened.
    """
    node = started(sim, MASTER)
    client, lives = client_of(sim), lives_of(node)
    assert sent(client, b"0") == [ResponseCode.SUCCESS]
    sim.run_for(3)
    assert sent(client, b"1") == [ResponseCode.SUCCESS]
    node.host.drive.refuse("sync", errno.EIO)
    sim.run_until(lambda: not lives(), 30)


def test_an_error_that_the_checkpoint_meets_ends_the_broker_too(sim: Simulation) -> None:
    """It syncs the log by the same descriptor, and takes the error from whoever would sync it
    next.
    """
    hour_ms = 3_600_000
    node = started(
        sim, MASTER, flushIntervalCommitLog=hour_ms, flushConsumeQueueThoroughInterval=3000
    )
    client, lives = client_of(sim), lives_of(node)
    assert sent(client, b"0") == [ResponseCode.SUCCESS]
    sim.run_for(9)
    store = serving(node).store
    assert sent(client, b"1") == [ResponseCode.SUCCESS]
    flushed_to = store.log.flushed_to
    node.host.drive.refuse("sync", errno.EIO)
    sim.run_until(lambda: not lives(), 30)
    assert store.log.flushed_to == flushed_to < store.log.end


def test_an_error_that_the_deletion_of_a_topic_meets_ends_the_broker_too(sim: Simulation) -> None:
    """It makes a checkpoint of its own, and nobody else has anything to sync."""
    hour_ms = 3_600_000
    periods = {"flushIntervalCommitLog": hour_ms, "flushConsumeQueueThoroughInterval": hour_ms}
    node = started(sim, MASTER, **periods)
    client, lives = client_of(sim), lives_of(node)
    assert sent(client, b"0") == [ResponseCode.SUCCESS]
    sim.run_for(9)
    node.host.drive.failure = errno.EIO
    client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert serving(node).store.failure is not None
    sim.run_until(lambda: not lives(), 30)


def read_only(sim: Simulation, **settings: object) -> tuple[BrokerNode, Client]:
    """A broker with three messages whose drive has failed with the fourth."""
    node = started(
        sim, MASTER, flushDiskType="SYNC_FLUSH", syncFailureAction="readOnly", **settings
    )
    client = client_of(sim)
    assert sent(client, b"0", b"1", b"2") == [ResponseCode.SUCCESS] * 3
    node.host.drive.refuse("sync", errno.EIO)
    assert sent(client, b"lost") == [ResponseCode.SERVICE_NOT_AVAILABLE]
    return node, client


def test_a_read_only_broker_serves_what_is_on_the_drive_and_takes_nothing(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    node, client = read_only(sim)
    lives, told = lives_of(node), len(caplog.records)
    for _ in range(20):
        answer = send(client, b"more")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark is not None
        assert "store has failed: [Errno 5] Input/output error: '/store/commitlog" in answer.remark
        sim.run_for(10)
    assert lives()
    fetched = serving(node).store.fetch("T", 0, 0, 32, TagFilter())
    assert [record.body for record in records_in(fetched)] == [b"0", b"1", b"2"]
    assert (
        "/store/commitlog"
        in client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]["storeFailure"]
    )
    assert len(critical(caplog)) == 1
    assert len([record for record in caplog.records[told:] if record.levelno >= logging.ERROR]) == 0


def test_what_waits_in_a_read_only_broker_is_told_of_once(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """Transactions of which producers are asked each minute, ends of them, and messages that are
    due.
    """
    rules = {"transactionCheckInterval": 60_000, "transactionTimeOut": 6_000}
    node = started(sim, MASTER, flushDiskType="SYNC_FLUSH", syncFailureAction="readOnly", **rules)
    client, producer = client_of(sim), TransactionProducer(sim, node, address="10.0.0.8")
    halves = [producer.half(b"%d" % number) for number in range(20)]
    assert send(client, b"late", properties="DELAY\x013\x02").code == ResponseCode.SUCCESS
    node.host.drive.refuse("sync", errno.EIO)
    assert sent(client, b"lost") == [ResponseCode.SERVICE_NOT_AVAILABLE]
    told = len(caplog.records)
    for half in halves:
        assert producer.end(half, COMMIT).code == ResponseCode.SERVICE_NOT_AVAILABLE
    for _ in range(10):
        sim.run_for(60)
        producer.announce()
    lines = sorted(
        record.getMessage() for record in caplog.records[told:] if record.levelno >= logging.WARNING
    )
    assert [line.split(":")[0] for line in lines] == [
        lines[0].split(":")[0],
        "delayed messages cannot be delivered, will be retried",
        "not all open transactions were checked, the next round checks the rest",
    ]
    assert "cannot end a transaction" in lines[0]
    assert producer.asked == []


def test_a_slave_whose_drive_has_failed_is_not_made_the_master(sim: Simulation) -> None:
    """It would end instead, and its settings say from then on that it is one."""
    names = NameServerNode(sim.host(NAMES))
    names.start()
    sim.run_for(1)
    known = {"namesrvAddr": f"{NAMES}:{NAME_SERVER_PORT}"}
    master = started(sim, MASTER, **known)
    slave = started(
        sim, SLAVE, syncFailureAction="readOnly", brokerRole="SLAVE", brokerId=1, **known
    )
    client, lives = client_of(sim), lives_of(slave)
    sim.run_for(40)
    slave.host.drive.failure = errno.EIO
    assert sent(client, b"0") == [ResponseCode.SUCCESS]
    sim.run_until(lambda: serving(slave).store.failure is not None, 30)
    master.host.crash()
    sim.run_for(5)
    header = {"role": "SYNC_MASTER", "fenced": True, "forced": True}
    answer = client_of(sim, SLAVE, "10.0.0.8").call(RequestCode.PROMOTE_SLAVE, **header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "a sync of this broker's store has failed: [Errno 5]" in answer.remark
    sim.run_for(5)
    assert lives()
    assert serving(slave).config.is_slave


def test_a_read_only_broker_says_so_to_name_servers(sim: Simulation) -> None:
    names = NameServerNode(sim.host(NAMES))
    names.start()
    sim.run_for(1)
    read_only(sim, namesrvAddr=f"{NAMES}:{NAME_SERVER_PORT}")
    sim.run_for(5)
    asker = Client(sim, sim.host("10.0.0.8"), f"{NAMES}:{NAME_SERVER_PORT}")
    answer = asker.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    (queues,) = parse(answer.body, Route.from_json).queues
    assert queues.perm == Permission.READ


def test_a_read_only_slave_follows_nobody(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    master = started(sim, MASTER)
    replica = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"{MASTER}:10912"}
    slave = started(sim, SLAVE, syncFailureAction="readOnly", **replica)
    client, lives = client_of(sim), lives_of(slave)
    assert sent(client, b"0") == [ResponseCode.SUCCESS]
    sim.run_for(10)
    assert sent(client, b"1") == [ResponseCode.SUCCESS]
    slave.host.drive.refuse("sync", errno.EIO)
    sim.run_until(lambda: serving(slave).store.failure is not None, 30)
    sim.run_for(5)
    told, end = len(caplog.records), serving(slave).store.log.end
    for _ in range(20):
        assert sent(client, b"more") == [ResponseCode.SUCCESS]
        sim.run_for(10)
    assert lives()
    assert serving(slave).store.log.end == end < serving(master).store.log.end
    assert not [
        record.getMessage() for record in caplog.records[told:] if record.levelno >= logging.WARNING
    ]


def test_a_slave_whose_drive_fails_ends_and_leaves_its_master_alone(sim: Simulation) -> None:
    master = started(sim, MASTER)
    slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{MASTER}:10912")
    client, lives = client_of(sim), lives_of(slave)
    sim.run_for(10)
    slave.host.drive.refuse("sync", errno.EIO)
    assert sent(client, b"0", b"1") == [ResponseCode.SUCCESS] * 2
    sim.run_until(lambda: not lives(), 30)
    assert sent(client, b"2") == [ResponseCode.SUCCESS]
    sim.run_until(lambda: slave.broker is not None, RESTART_S + 10)
    sim.run_until(lambda: serving(slave).store.log.end == serving(master).store.log.end, 30)


def couple(sim: Simulation) -> tuple[BrokerNode, BrokerNode, Client]:
    """A master with a record that its slave has, its slave, and a client of the master."""
    master = started(sim, MASTER)
    slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{MASTER}:10912")
    client = client_of(sim)
    assert send(client, b"0").code == ResponseCode.SUCCESS
    sim.run_for(10)
    return master, slave, client


def fail(sim: Simulation, master: BrokerNode) -> None:
    """Let the next sync of the master fail."""
    master.host.drive.refuse("sync", errno.EIO)
    sim.run_until(lambda: serving(master).store.failure is not None, 30)


def run_until_ended(sim: Simulation, master: BrokerNode, within_s: float) -> None:
    process = master.host.process
    sim.run_until(lambda: master.host.process is not process, within_s)


def test_a_master_lets_its_slaves_have_what_its_drive_refuses(sim: Simulation) -> None:
    """ASYNC_FLUSH: it was acknowledged, and is nowhere else."""
    master, slave, client = couple(sim)
    sim.network.partition(MASTER, SLAVE)
    for body in b"1", b"2":
        assert send(client, body).code == ResponseCode.SUCCESS
    end = serving(master).store.log.end
    fail(sim, master)
    sim.network.heal()
    run_until_ended(sim, master, 30)
    assert serving(slave).store.log.end == end


def test_a_slave_that_copies_nothing_holds_up_its_master_for_a_short_time_only(
    sim: Simulation,
) -> None:
    master, _, client = couple(sim)
    sim.network.partition(MASTER, SLAVE)
    assert send(client, b"1").code == ResponseCode.SUCCESS
    fail(sim, master)
    began_s = sim.now_s
    run_until_ended(sim, master, 30)
    assert HAND_OVER_S <= sim.now_s - began_s < HAND_OVER_S + 5
