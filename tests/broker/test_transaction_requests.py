"""Half messages and their ends at a broker, by what its log and queues hold (protocol.md 5.9, store-and-ha.md 6.8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.transactions import GROUP
from roquet.protocol.bodies import Heartbeat
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.transactions import COMMIT, ROLLBACK, UNKNOWN, CheckTransactionHeader
from roquet.protocol.json_dialect import dump_bytes
from roquet.protocol.message import (
    CHECK_MAX_TIME_TOPIC,
    CHECK_TIMES,
    FIRST_HALF_OFFSET,
    HALF_OP_TOPIC,
    HALF_TOPIC,
    UNIQ_KEY,
    join_properties,
    parse_offset_message_id,
    tag_code,
)
from roquet.protocol.record import Record, decode
from roquet.transport.connection import Connection, Handler
from tests.broker.harness import Client
from tests.broker.served import SEND, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS = "10.0.0.1"
RECORDS = Path(__file__).parent.parent / "golden" / "records"
PERIOD_S = 60.0
SMALL_LOG: dict[str, object] = {"mapedFileSizeCommitLog": 65536}


class TransactionProducer(Client):
    """A producer of a group at one broker, that keeps what it is asked."""

    def __init__(self, sim: Simulation, node: BrokerNode, group: str = "P", address: str = "10.0.0.9") -> None:
        handlers: dict[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: self._check}
        super().__init__(sim, sim.host(address), node.address, handlers)
        self.group = group
        self.asked: list[tuple[CheckTransactionHeader, Record]] = []
        self.announce()

    def _check(self, request: Command, connection: Connection) -> None:
        self.asked.append((CheckTransactionHeader.read(request.fields), decode(request.body)))

    def announce(self) -> None:
        body = dump_bytes(Heartbeat(f"{self.host.address}@1", (self.group,), ()).to_json())
        assert self.call(RequestCode.HEART_BEAT, body).code == 0

    def half(self, body: bytes = b"body", topic: str = "T", queue_id: int = 1, **more: str) -> Half:
        pairs = {
            "TRAN_MSG": "true",
            "PGROUP": self.group,
            UNIQ_KEY: f"key of {body[:20].decode()}",
            "WAIT": "true",
            **more,
        }
        fields = {
            **SEND,
            "a": self.group,
            "b": topic,
            "e": queue_id,
            "f": 4,
            "g": self.host.now_ms(),
            "i": join_properties(pairs),
        }
        answer = self.call(RequestCode.SEND_MESSAGE_V2, body, **fields)
        assert answer.code == 0, answer.remark
        assert int(answer.fields["queueId"]) == queue_id, "clients read it as that of the topic they sent to"
        _, _, at = parse_offset_message_id(answer.fields["msgId"])
        return Half(int(answer.fields["queueOffset"]), at)

    def end(self, half: Half, kind: int, **more: object) -> Command:
        """By a request that wants an answer, as Go's client does."""
        fields = {"producerGroup": self.group, "msgId": "m", "commitOrRollback": kind, **half.fields, **more}
        return self.call(RequestCode.END_TRANSACTION, **fields)


class Half:
    """Where a half message stands."""

    def __init__(self, offset: int, at: int) -> None:
        self.offset, self.at = offset, at

    @property
    def fields(self) -> dict[str, object]:
        return {"tranStateTableOffset": self.offset, "commitLogOffset": self.at}


def queue(node: BrokerNode, topic: str, queue_id: int = 0) -> list[Record]:
    """All that a queue points to."""
    store = serving(node).store
    entries = store.queue(topic, queue_id).entries(0, 1000)
    return [decode(store.message_at(at) or b"") for at, *_ in entries]


def bodies(node: BrokerNode, topic: str = "T", queue_id: int = 1) -> list[str]:
    return [record.body.decode() for record in queue(node, topic, queue_id)]


def restart(sim: Simulation, node: BrokerNode, way: str) -> None:
    {"stop": node.stop, "kill": node.host.kill, "crash": node.host.crash}[way]()
    node.start()
    sim.run_until(lambda: node.broker is not None, 30)
    sim.run_for(1)


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS, **SMALL_LOG)


@pytest.fixture
def producer(sim: Simulation, node: BrokerNode) -> TransactionProducer:
    return TransactionProducer(sim, node)


def golden(name: str) -> Record:
    return decode((RECORDS / f"{name}.bin").read_bytes())


# the half message


def test_nobody_sees_a_half_message_before_its_transaction_is_committed(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    first, second = producer.half(b"first"), producer.half(b"second")
    assert (bodies(node), first.offset, second.offset) == ([], 0, 1)
    assert producer.end(second, COMMIT).code == 0
    assert producer.end(first, COMMIT).code == 0
    assert bodies(node) == ["second", "first"]


def test_records_are_as_apaches_broker_writes_them(node: BrokerNode, producer: TransactionProducer) -> None:
    producer.end(producer.half(TAGS="TagA", KEYS="k"), COMMIT)
    (half,), (end,), (committed,) = (
        queue(node, topic, at) for topic, at in ((HALF_TOPIC, 0), (HALF_OP_TOPIC, 0), ("T", 1))
    )
    for ours, theirs in (half, golden("half")), (end, golden("operation")), (committed, golden("committed")):
        assert (ours.sys_flag, ours.topic == theirs.topic or theirs.topic == "GoldenStore") == (theirs.sys_flag, True)
        assert ours.properties.keys() == theirs.properties.keys()
        assert (ours.born_host == ours.store_host) == (theirs.born_host == theirs.store_host)
    assert (half.queue_id, half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == (0, "T", "1")
    assert (end.body, end.properties) == (b"0", golden("operation").properties)
    assert committed.prepared_offset == half.physical_offset
    assert (committed.born_ms, committed.born_host) == (half.born_ms, half.born_host)
    assert committed.properties == half.properties


def test_a_rolled_back_message_is_never_seen_and_an_unknown_one_stays_open(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    rolled_back, unknown = producer.half(b"rolled back"), producer.half(b"unknown")
    assert producer.end(rolled_back, ROLLBACK).code == 0
    request = Command(RequestCode.END_TRANSACTION, {"producerGroup": "P", "commitOrRollback": str(UNKNOWN)})
    request.fields |= {name: str(value) for name, value in unknown.fields.items()}
    producer.host.call(lambda: producer.channels.notify(producer.broker, request))
    assert producer.end(rolled_back, COMMIT).code == 1, "it has ended"
    assert bodies(node) == []
    assert len(serving(node).parts.halves.open) == 1


def test_a_delay_begins_when_the_transaction_is_committed(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    half = producer.half(DELAY="2")
    sim.run_for(10)
    assert len(bodies(node, HALF_TOPIC, 0)) == 1
    producer.end(half, COMMIT)
    sim.run_for(4)
    assert bodies(node) == []
    sim.run_for(2)
    assert bodies(node) == ["body"]


def test_properties_leave_room_for_what_is_added_when_a_half_message_is_written_again(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    fixed = len(queue(node, HALF_TOPIC)[0].properties_text) if producer.half() else 0
    producer.half(mine="x" * (32_767 - 100 - fixed - len("mine") - 2))
    with pytest.raises(AssertionError, match="allowed are 32667 in a transaction"):
        producer.half(mine="x" * (32_767 - 100 - fixed - len("mine") - 1))
    sim.run_for(PERIOD_S)
    assert len(producer.asked) == 2


def test_a_broker_that_takes_no_transactions_says_so(sim: Simulation) -> None:
    node = started(sim, ADDRESS, rejectTransactionMessage="true")
    producer = TransactionProducer(sim, node)
    fields = {**SEND, "b": "T", "e": 0, "i": join_properties({"TRAN_MSG": "TRUE", "PGROUP": "P"})}
    answer = producer.call(RequestCode.SEND_MESSAGE_V2, b"body", **fields)
    assert (answer.code, "rejectTransactionMessage" in (answer.remark or "")) == (16, True)


def test_many_half_messages_and_plain_ones_on_one_connection_each_go_their_way(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    for number in range(6):
        half = producer.half(str(number).encode())
        fields = {**SEND, "b": "T", "e": 1, "i": join_properties({UNIQ_KEY: f"plain {number}"})}
        assert producer.call(RequestCode.SEND_MESSAGE_V2, b"plain", **fields).code == 0
        assert half.offset == number
    assert bodies(node) == ["plain"] * 6
    assert bodies(node, HALF_TOPIC, 0) == list("012345")


# ending it


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"producerGroup": "Q"}, "of producer group P"),
        ({"tranStateTableOffset": 1}, "has the queue offset 0"),
        ({"commitLogOffset": 1}, "no half message at 1"),
        ({"commitLogOffset": 1 << 40}, "no half message"),
        ({"commitOrRollback": 3}, "known are 8, 12 and 0"),
    ],
)
def test_who_names_another_half_message_changes_nothing(
    node: BrokerNode,
    producer: TransactionProducer,
    wrong: dict[str, object],
    remark: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = producer.end(producer.half(), COMMIT, **wrong)
    assert (answer.code, remark in (answer.remark or "")) == (1, True)
    assert remark in caplog.text, "clients would not hear of it"
    assert (bodies(node), bodies(node, HALF_OP_TOPIC, 0)) == ([], [])


def test_a_plain_message_is_no_half_message_whatever_its_properties_say(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    fields = {**SEND, "b": "T", "e": 1, "i": join_properties({"PGROUP": "P", "REAL_TOPIC": "../x", "REAL_QID": "0"})}
    answer = producer.call(RequestCode.SEND_MESSAGE_V2, b"body", **fields)
    _, _, at = parse_offset_message_id(answer.fields["msgId"])
    assert producer.end(Half(0, at), COMMIT).code == 1
    assert producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=answer.fields["msgId"]).code == 1


def test_a_transaction_ends_once(node: BrokerNode, producer: TransactionProducer) -> None:
    half = producer.half()
    assert [producer.end(half, COMMIT).code for _ in range(2)] == [0, 1]
    assert (bodies(node), bodies(node, HALF_OP_TOPIC, 0)) == (["body"], ["0"])


# asking


def test_a_producer_is_asked_about_what_it_left_open_by_the_record_that_counts_then(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    half = producer.half(b"body", TAGS="TagA")
    sim.run_for(PERIOD_S)
    ((header, message),) = producer.asked
    first, renewed = queue(node, HALF_TOPIC)
    assert (first.queue_offset, renewed.queue_offset) == (half.offset, 1)
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, renewed.physical_offset)
    assert (header.offset_msg_id, header.transaction_id) == (renewed.offset_message_id, "key of body")
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"body")
    assert renewed.properties == first.properties | {CHECK_TIMES: "1", FIRST_HALF_OFFSET: "0"}
    assert producer.end(Half(1, renewed.physical_offset), COMMIT, fromTransactionCheck="true").code == 0
    sim.run_for(3 * PERIOD_S)
    assert (bodies(node), len(producer.asked)) == (["body"], 1)


def test_a_record_that_was_written_again_has_an_end(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    """So a broker of Apache's that goes on with this store asks about the newest record only."""
    producer.half()
    sim.run_for(2 * PERIOD_S)
    assert [record.queue_offset for record in queue(node, HALF_TOPIC)] == [0, 1, 2]
    assert bodies(node, HALF_OP_TOPIC, 0) == ["0", "1"]


def test_a_word_on_a_record_that_was_written_again_meanwhile_ends_the_transaction(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    """Apache's broker would deliver the message now and ask again about the newer record."""
    half = producer.half()
    sim.run_for(PERIOD_S)
    assert producer.end(half, COMMIT).code == 0
    assert producer.end(Half(1, queue(node, HALF_TOPIC)[1].physical_offset), COMMIT).code == 1
    sim.run_for(3 * PERIOD_S)
    assert (bodies(node), len(producer.asked)) == (["body"], 1)


def test_it_is_asked_about_each_minute_and_given_up_after_the_last_time(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=3, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    half = producer.half()
    for minute in range(1, 6):
        sim.run_for(PERIOD_S)
        producer.announce()
        assert len(producer.asked) == min(minute, 3)
    assert bodies(node, CHECK_MAX_TIME_TOPIC, 0) == ["body"]
    assert producer.end(half, COMMIT).code == 1
    assert bodies(node) == []
    broker = serving(node)
    assert [broker.parts.tables.progress.committed(GROUP, topic, 0) for topic in (HALF_TOPIC, HALF_OP_TOPIC)] == [4, 4]


def test_what_was_given_up_can_be_resumed(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=1, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    producer.half()
    sim.run_for(2.5 * PERIOD_S)
    producer.announce()
    (given_up,) = queue(node, CHECK_MAX_TIME_TOPIC)
    assert len(producer.asked) == 1
    assert producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=given_up.offset_message_id).code == 0
    sim.run_for(PERIOD_S)
    (_, (header, _)) = producer.asked
    assert producer.end(Half(header.tran_state_table_offset, header.commit_log_offset), COMMIT).code == 0
    assert bodies(node) == ["body"]


def test_an_open_one_that_is_resumed_is_asked_about_as_often_as_a_new_one(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=2, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    producer.half()
    sim.run_for(1.5 * PERIOD_S)
    (_, renewed) = queue(node, HALF_TOPIC)
    assert producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=renewed.offset_message_id).code == 0
    for _ in range(3):
        sim.run_for(PERIOD_S)
        producer.announce()
    assert len(producer.asked) == 3
    assert bodies(node, CHECK_MAX_TIME_TOPIC, 0) == ["body"]


def test_nobody_is_asked_while_the_message_is_immune(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    producer.half(CHECK_IMMUNITY_TIME_IN_SECONDS="150")
    sim.run_for(2.4 * PERIOD_S)
    assert (producer.asked, len(queue(node, HALF_TOPIC)) <= 3) == ([], True)
    producer.announce()
    sim.run_for(PERIOD_S)
    assert len(producer.asked) == 1


def test_whoever_of_the_group_is_there_is_asked(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    other = TransactionProducer(sim, node, address="10.0.0.8")
    stranger = TransactionProducer(sim, node, group="Q", address="10.0.0.7")
    for number in range(4):
        producer.half(str(number).encode())
    sim.run_for(PERIOD_S)
    assert (len(producer.asked), len(other.asked), len(stranger.asked)) == (2, 2, 0)
    producer.host.kill()
    sim.run_for(PERIOD_S)
    assert sorted(message.body.decode() for _, message in other.asked[2:]) == list("0123")


def test_thousands_of_open_ones_hold_nobody_up(sim: Simulation) -> None:
    node = started(sim, ADDRESS, mapedFileSizeCommitLog=1 << 20, mapedFileSizeConsumeQueue=20_000)
    producer = TransactionProducer(sim, node)
    for number in range(2000):
        producer.half(b"%d" % number + b"." * 400)
    before = sim.loop.events
    sim.run_until(lambda: len(producer.asked) >= 1, PERIOD_S)
    assert len(queue(node, HALF_TOPIC)) < 2000 + 400, "others have their turn in between"
    sim.run_until(lambda: len(producer.asked) == 2000, 10)
    assert sim.loop.events > before


def test_who_does_not_read_what_he_was_asked_is_asked_for_the_rest_later(sim: Simulation) -> None:
    """A question that cannot be put is no check, and holds nobody up."""
    node = started(sim, ADDRESS, mapedFileSizeCommitLog=64 << 20, maxMessageSize=4 << 20)
    producer = TransactionProducer(sim, node)
    for number in range(16):
        producer.half(b"%d" % number + b"." * (1 << 20))
    (connection,) = producer.channels._open.values()
    assert connection._transport is not None
    connection._transport.pause_reading()
    sim.run_for(PERIOD_S)
    checks = [half.checks for half in serving(node).parts.halves.open.all()]
    assert 0 < checks.count(1) < 16
    assert checks.count(0) + checks.count(1) == 16
    connection._transport.resume_reading()
    producer.announce()
    sim.run_for(PERIOD_S)
    assert {record.body for _, record in producer.asked} == {b"%d" % n + b"." * (1 << 20) for n in range(16)}


def test_a_half_message_that_waits_in_memory_for_its_file_can_be_ended(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transientStorePoolEnable="true", commitIntervalCommitLog=50_000, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    half = producer.half()
    assert serving(node).store.log.readable_to <= half.at
    assert producer.end(half, COMMIT).code == 0
    assert len(serving(node).parts.halves.open) == 0


def test_a_message_for_a_queue_that_cannot_be_is_given_up(sim: Simulation, node: BrokerNode) -> None:
    """Whoever wrote it: ours would not."""
    producer = TransactionProducer(sim, node)
    broker = serving(node)
    pairs = {"TRAN_MSG": "true", "PGROUP": "P"}

    async def put() -> None:
        broker.parts.halves.put("../x", 0, b"bad", pairs, 0, 0, node.host.now_ms(), bytes(8), 0)

    node.host.call(put)
    half = producer.half(b"good")
    bad = queue(node, HALF_TOPIC)[0]
    assert producer.end(Half(0, bad.physical_offset), COMMIT).code == 1
    sim.run_for(PERIOD_S)
    assert bodies(node, CHECK_MAX_TIME_TOPIC, 0) == ["bad"]
    assert [record.body for _, record in producer.asked] == [b"good"]
    assert producer.end(half, COMMIT).code == 0


# over restarts


@pytest.mark.parametrize("way", ["stop", "kill", "crash"])
def test_open_transactions_are_open_after_a_restart_and_ended_ones_are_not(sim: Simulation, way: str) -> None:
    node = started(sim, ADDRESS, flushDiskType="SYNC_FLUSH", **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    committed, rolled_back = producer.half(b"committed"), producer.half(b"rolled back")
    opened, asked_about = producer.half(b"open"), producer.half(b"asked about")
    producer.end(committed, COMMIT)
    producer.end(rolled_back, ROLLBACK)
    sim.run_for(PERIOD_S)
    table = serving(node).parts.halves.open.all()
    restart(sim, node, way)
    assert [half.offset for half in serving(node).parts.halves.open.all()] == [half.offset for half in table]
    producer.announce()
    assert [producer.end(half, COMMIT).code for half in (opened, asked_about)] == [0, 0]
    sim.run_for(2 * PERIOD_S)
    assert sorted(bodies(node)) == ["asked about", "committed", "open"]
    assert len(serving(node).parts.halves.open) == 0


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_what_ended_behind_an_open_one_has_ended_after_a_restart(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer, way: str
) -> None:
    """The progress stands before it: only its end tells."""
    producer.half(b"open")
    ended = [producer.half(b"committed"), producer.half(b"rolled back")]
    for half, kind in zip(ended, (COMMIT, ROLLBACK), strict=True):
        assert producer.end(half, kind).code == 0
    sim.run_for(11)
    restart(sim, node, way)
    assert [half.offset for half in serving(node).parts.halves.open.all()] == [0]
    assert [producer.end(half, COMMIT).code for half in ended] == [1, 1]
    producer.announce()
    sim.run_for(PERIOD_S)
    assert [record.body for _, record in producer.asked] == [b"open"]
    assert bodies(node) == ["committed"]


def test_ends_of_several_transactions_as_5x_notes_them_are_read(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    for body in b"0", b"1", b"2", b"3":
        producer.half(body)
    store, tags = serving(node).store, join_properties({"TAGS": "d"}).encode()

    async def end_as_5x_does() -> None:
        store.append(store.queue(HALF_OP_TOPIC, 0), b"0,2,3,", tags, (), tag_code("d"), 0, 0, 0, bytes(8))

    node.host.call(end_as_5x_does)
    restart(sim, node, "kill")
    assert [half.offset for half in serving(node).parts.halves.open.all()] == [1]


def test_progress_is_noted_when_the_ends_before_it_are_on_disk(sim: Simulation) -> None:
    """Else a power failure could take an end and leave the half message, and nobody would ever ask about that."""
    lazy = {"flushCommitLogThoroughInterval": 40_000, "flushCommitLogLeastPages": 100}
    node = started(sim, ADDRESS, **{**SMALL_LOG, **lazy, "flushConsumeQueueThoroughInterval": 1_000_000})
    producer = TransactionProducer(sim, node)
    half = producer.half()
    log, progress = serving(node).store.log, serving(node).parts.tables.progress
    sim.run_until(lambda: log.flushed_to == log.end, 50)
    assert producer.end(half, COMMIT).code == 0
    sim.run_for(20)
    assert (progress.committed(GROUP, HALF_TOPIC, 0) or 0, log.flushed_to < log.end) == (0, True)
    sim.run_until(lambda: log.flushed_to == log.end, 50)
    sim.run_for(11)
    assert [progress.committed(GROUP, topic, 0) for topic in (HALF_TOPIC, HALF_OP_TOPIC)] == [1, 1]


def test_checks_of_before_a_restart_count(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=2, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    producer.half()
    for _ in range(4):
        sim.run_for(PERIOD_S)
        restart(sim, node, "stop")
        producer.announce()
    assert len(producer.asked) == 2
    assert bodies(node, CHECK_MAX_TIME_TOPIC, 0) == ["body"]
