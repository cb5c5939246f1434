"""A broker with a file that it cannot read serves all the others (decision 0026)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import bodies_in

QUEUE: Final = Path(f"/store/consumequeue/T/0/{0:020}")
LOG: Final = Path(f"/store/commitlog/{0:020}")


def pull_request(topic: str, offset: int, suspend_ms: int) -> Command:
    fields = {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 8,
        "sysFlag": 6 if suspend_ms else 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": suspend_ms,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return Command(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()})


def pull(client: Client, topic: str) -> Command:
    request = pull_request(topic, 0, 0)
    return client.call(request.code, **request.fields)


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS)


@pytest.fixture
def client(sim: Simulation, node: BrokerNode) -> Client:
    client = Client(sim, sim.host("10.0.0.9"))
    for number in range(57):
        assert send(client, b"%d" % number).code == ResponseCode.SUCCESS
    assert send(client, b"other", "Other").code == ResponseCode.SUCCESS
    return client


@pytest.mark.parametrize("file", [QUEUE, LOG])
def test_a_pull_that_needs_the_file_is_told_which_and_others_are_served(
    node: BrokerNode, client: Client, file: Path
) -> None:
    node.host.drive.lost_from[file] = 0
    answer = pull(client, "T")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queue 0 of T cannot be read at offset 0" in str(answer.remark)
    assert str(file) in str(answer.remark)
    assert pull(client, "Other").code == ResponseCode.SUCCESS
    assert send(client, b"more", "Other").code == ResponseCode.SUCCESS


def test_a_message_for_a_queue_that_has_lost_bytes_is_refused_and_leaves_no_trace(
    node: BrokerNode, client: Client
) -> None:
    last = sorted(path for path in node.host.drive.names.files if path.parent == QUEUE.parent)[-1]
    store = serving(node).store
    node.host.drive.lost_from[last] = 0
    end = store.log.end
    answer = send(client, b"refused")
    assert (answer.code, store.log.end) == (ResponseCode.SYSTEM_ERROR, end)
    assert str(last) in str(answer.remark)
    node.host.drive.lost_from.clear()
    assert send(client, b"taken").code == ResponseCode.SUCCESS


def test_a_pull_that_waits_is_answered_with_the_error_when_its_message_comes(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    other = Client(sim, sim.host("10.0.0.8"))
    answers: list[Command] = []

    async def wait() -> None:
        answers.append(
            await other.channels.call(other.broker, pull_request("Other", 1, 15_000), 20_000)
        )

    other.host.start(wait)
    sim.run_for(1)
    assert not answers
    node.host.drive.unreadable.add(Path(f"/store/consumequeue/Other/0/{0:020}"))
    assert send(client, b"more", "Other").code == ResponseCode.SUCCESS
    sim.run_for(1)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
    assert "queue 0 of Other cannot be read at offset 1" in str(answers[0].remark)


def test_a_queue_of_delayed_messages_that_cannot_be_read_holds_up_no_other(
    sim: Simulation, node: BrokerNode, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Levels 1 and 2: a second and five. What waits there comes once it can be read."""
    bad = Path(f"/store/consumequeue/SCHEDULE_TOPIC_XXXX/0/{0:020}")
    node.host.drive.unreadable.add(bad)
    assert send(client, b"first", "Other", "DELAY\x011\x02").code == ResponseCode.SUCCESS
    for _ in range(5):
        assert send(client, b"second", "Other", "DELAY\x012\x02").code == ResponseCode.SUCCESS
        sim.run_for(10)
    store = serving(node).store
    assert bodies_in(store, "Other") == [b"other", *[b"second"] * 5]
    assert len([line for line in caplog.messages if "delayed messages" in line]) == 1
    node.host.drive.unreadable.clear()
    sim.run_for(5)
    assert bodies_in(store, "Other")[-1] == b"first"
    assert [line for line in caplog.messages if "delayed messages" in line][1:] == [
        "delayed messages are delivered again"
    ]


def test_delayed_messages_in_a_file_of_the_log_that_cannot_be_read_hold_up_a_level_for_a_minute(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """It may come back by then. After that the others of the level go; those in it stay in the
    log.
    """
    node = started(sim, ADDRESS, mapedFileSizeCommitLog=65_536)
    client, store = Client(sim, sim.host("10.0.0.9")), serving(node).store
    level_3, level_4 = "DELAY\x013\x02", "DELAY\x014\x02"  # 10 s and 30 s
    for body in (b"lost 0", b"lost 1"):
        assert send(client, body, "Other", level_3).code == ResponseCode.SUCCESS
    assert send(client, b"lost 2", "Other", level_4).code == ResponseCode.SUCCESS
    while store.log.end < 65_536:
        assert send(client, bytes(9000)).code == ResponseCode.SUCCESS
    for body in (b"kept 0", b"kept 1"):
        assert send(client, body, "Other", level_3).code == ResponseCode.SUCCESS
    assert send(client, b"kept 2", "Other", level_4).code == ResponseCode.SUCCESS
    node.host.drive.unreadable.add(LOG)
    sim.run_for(40)
    assert bodies_in(store, "Other") == []
    sim.run_for(60)
    assert sorted(bodies_in(store, "Other")) == [b"kept 0", b"kept 1", b"kept 2"]
    assert send(client, b"kept 3", "Other", level_3).code == ResponseCode.SUCCESS
    sim.run_for(11)
    assert bodies_in(store, "Other")[-1] == b"kept 3"
    told = [line for line in caplog.messages if "delayed messages" in line]
    assert told[0].startswith("delayed messages cannot be delivered, will be retried: level=3 ")
    passed_over = "delayed messages are skipped, their file cannot be read: level="
    assert sorted(line for line in told if line.startswith(passed_over)) == [
        f"{passed_over}{level} queue_offsets=0:{count} path={LOG}; once it can be read: "
        f"roquet store dump --topic SCHEDULE_TOPIC_XXXX --queue {level - 1} --offset 0:{count} STORE"
        for level, count in ((3, 2), (4, 1))
    ]
    assert (len(told), told[-1]) == (4, "delayed messages are delivered again")


def test_delayed_messages_wait_for_a_file_of_the_log_that_comes_back(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    assert send(client, b"late", "Other", "DELAY\x012\x02").code == ResponseCode.SUCCESS
    store = serving(node).store
    newest = Path(f"/store/commitlog/{store.log.file_starts[-1]:020}")
    node.host.drive.unreadable.add(newest)
    sim.run_for(50)
    assert store.max_offset("Other", 0) == 1
    node.host.drive.unreadable.clear()
    sim.run_for(1)
    assert bodies_in(store, "Other") == [b"other", b"late"]


def test_delayed_messages_wait_for_a_file_each_time_it_cannot_be_read(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    for body, pause_s in ((b"first", 15), (b"second", 43)):
        assert (
            send(client, body, "Other", "DELAY\x015\x02").code == ResponseCode.SUCCESS
        )  # a minute
        sim.run_for(pause_s)
    store = serving(node).store
    newest = Path(f"/store/commitlog/{store.log.file_starts[-1]:020}")
    node.host.drive.unreadable.add(newest)
    sim.run_for(5)
    node.host.drive.unreadable.clear()
    sim.run_for(3)
    assert bodies_in(store, "Other") == [b"other", b"first"]
    node.host.drive.unreadable.add(newest)
    sim.run_for(60)  # 66 s after the first could not be read, 51 s after the second could not
    node.host.drive.unreadable.clear()
    sim.run_for(3)
    assert bodies_in(store, "Other") == [b"other", b"first", b"second"]


@pytest.mark.parametrize("is_slave", [True, False])
def test_a_queue_whose_file_was_cut_is_made_anew_while_others_go_on(
    sim: Simulation, node: BrokerNode, client: Client, *, is_slave: bool
) -> None:
    replica = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"{ADDRESS}:10912"}
    slave = started(sim, "10.0.0.2", **replica)
    sim.run_for(15)
    damaged = slave if is_slave else node
    store = serving(damaged).store
    last = max(path for path in damaged.host.drive.names.files if path.parent == QUEUE.parent)
    damaged.host.drive.lost_from[last] = 0
    code = send(client, b"more").code
    assert code == (ResponseCode.SUCCESS if is_slave else ResponseCode.SYSTEM_ERROR)
    assert send(client, b"more", "Other").code == ResponseCode.SUCCESS
    sim.run_for(0.1)
    assert (store.dispatch.lag_reason, bodies_in(store, "Other")) == ("", [b"other", b"more"])
    sim.run_for(5)
    assert send(client, b"last").code == ResponseCode.SUCCESS
    sim.run_for(5)
    assert bodies_in(store, "T")[-2:] == [b"more" if is_slave else b"56", b"last"]
    assert store.remark == ""


def test_queues_whose_files_were_deleted_are_made_anew_while_others_go_on(
    sim: Simulation, node: BrokerNode, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The next checkpoint that has entries for them notices, and is made again when they are
    whole.
    """
    store, drive = serving(node).store, node.host.drive
    sim.run_for(15)
    for path in sorted(drive.names.files):
        if path.parent == QUEUE.parent:
            drive.remove(path)
    assert send(client, b"more").code == ResponseCode.SUCCESS
    assert send(client, b"more", "Other").code == ResponseCode.SUCCESS
    sim.run_for(70)
    assert send(client, b"last").code == ResponseCode.SUCCESS
    sim.run_for(70)
    assert (store.remark, store.failure) == ("", None)
    assert (
        len(
            [line for line in caplog.messages if line.startswith("a file of the store was deleted")]
        )
        == 1
    )
    assert store.checkpoint.mark is not None
    assert store.checkpoint.mark.position == store.log.end
    node.host.crash()
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)
    store = serving(node).store
    assert bodies_in(store, "T") == [*[b"%d" % number for number in range(57)], b"more", b"last"]
    assert bodies_in(store, "Other") == [b"other", b"more"]


def test_a_file_of_the_log_that_was_deleted_is_told_of_by_the_next_pass_of_cleaning(
    sim: Simulation, node: BrokerNode, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    sim.run_for(75)
    assert serving(node).store.log.flushed_to == serving(node).store.log.end
    node.host.drive.remove(LOG)
    sim.run_for(75)
    assert len([line for line in caplog.messages if str(LOG) in line]) == 1
    assert serving(node).store.failure is None, "all that it holds can be read"
