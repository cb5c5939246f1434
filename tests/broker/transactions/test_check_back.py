"""Whom a broker asks about open transactions, and what becomes of those nobody ends.

See docs/storage/transactions.md#when-a-producer-is-asked.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from roquet.broker.transactions.open_table import GROUP
from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.records.message import (
    CHECK_MAX_TIME_TOPIC,
    CHECK_TIMES,
    FIRST_HALF_OFFSET,
    HALF_OP_TOPIC,
    HALF_TOPIC,
)
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.served import flush_and_drop, send, serving, started
from tests.broker.transacting import (
    ADDRESS,
    PERIOD_S,
    SMALL_LOG,
    StoredHalf,
    TransactionProducer,
    bodies,
    queue,
)
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation


def test_a_producer_is_asked_about_what_it_left_open_by_the_record_that_counts_then(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    half = producer.half(b"body", TAGS="TagA")
    sim.run_for(PERIOD_S)
    ((header, message),) = producer.asked
    first, renewed = queue(node, HALF_TOPIC)
    assert (first.queue_offset, renewed.queue_offset) == (half.offset, 1)
    assert (header.tran_state_table_offset, header.commit_log_offset) == (
        1,
        renewed.physical_offset,
    )
    assert (header.offset_msg_id, header.transaction_id) == (
        renewed.offset_message_id,
        "key of body",
    )
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"body")
    assert renewed.properties == first.properties | {CHECK_TIMES: "1", FIRST_HALF_OFFSET: "0"}
    assert (
        producer.end(
            StoredHalf(1, renewed.physical_offset), COMMIT, fromTransactionCheck="true"
        ).code
        == 0
    )
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
    assert producer.end(StoredHalf(1, queue(node, HALF_TOPIC)[1].physical_offset), COMMIT).code == 1
    sim.run_for(3 * PERIOD_S)
    assert (bodies(node), len(producer.asked)) == (["body"], 1)


def test_one_whose_file_cannot_be_read_stays_open_and_holds_up_no_other(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    node = started(sim, ADDRESS)
    producer = TransactionProducer(sim, node)
    producer.half(b"first")
    for number in range(50):
        assert send(producer, b"%d" % number).code == 0
    producer.half(b"second")
    bad = Path(f"/store/commitlog/{0:020}")
    node.host.drive.unreadable.add(bad)
    for _ in range(3):
        sim.run_for(PERIOD_S)
        producer.announce()
    assert {record.body for _, record in producer.asked} == {b"second"}
    assert (
        len([line for line in caplog.messages if "not all open transactions were checked" in line])
        == 1
    )
    node.host.drive.unreadable.clear()
    sim.run_for(PERIOD_S)
    assert {record.body for _, record in producer.asked} == {b"first", b"second"}


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
    assert [
        broker.parts.tables.offsets.committed(GROUP, topic, 0)
        for topic in (HALF_TOPIC, HALF_OP_TOPIC)
    ] == [4, 4]


def test_a_round_has_one_line_of_each_kind_however_many_are_open(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = started(sim, ADDRESS, transactionCheckMax=1)
    producer = TransactionProducer(sim, node)
    for number in range(50):
        producer.half(b"%d" % number)
    sim.run_for(PERIOD_S)
    producer.host.kill()
    for _ in range(3):
        sim.run_for(PERIOD_S)
    assert serving(node).store.max_offset(CHECK_MAX_TIME_TOPIC, 0) == 50
    lines = [line for line in caplog.messages if "transactions " in line]
    assert [line.partition(" first=")[0] for line in lines if "given up" in line] == [
        "transactions given up, their messages were moved:"
        f" topic={CHECK_MAX_TIME_TOPIC} count=50 checks=1"
    ]
    assert len(lines) <= 2


def test_nobody_is_asked_while_the_drive_is_too_full_for_an_answer(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """What its producer has committed meanwhile was refused: it must not be given up for that."""
    node = started(sim, ADDRESS, transactionCheckMax=2, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    half = producer.half()
    node.host.drive.used_ratio = 0.95
    sim.run_for(11)
    assert producer.end(half, COMMIT).code == ResponseCode.SERVICE_NOT_AVAILABLE
    for _ in range(4):
        sim.run_for(PERIOD_S)
        producer.announce()
    assert (
        producer.asked,
        len(queue(node, HALF_TOPIC)),
        bodies(node, CHECK_MAX_TIME_TOPIC, 0),
    ) == ([], 1, [])
    assert (
        len([line for line in caplog.messages if "not all open transactions were checked" in line])
        == 1
    )
    node.host.drive.used_ratio = 0.5
    sim.run_for(PERIOD_S)
    assert [record.body for _, record in producer.asked] == [b"body"]


def test_half_messages_whose_file_is_gone_are_rolled_back_and_told_of_once(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    node = started(sim, ADDRESS, mapedFileSizeCommitLog=4096)
    producer = TransactionProducer(sim, node)
    for number in range(30):
        producer.half(b"%d" % number)
    node.host.call(lambda: flush_and_drop(node))
    sim.run_for(PERIOD_S)
    assert 0 < len(producer.asked) < 20
    assert len(serving(node).parts.halves.open) == len(producer.asked)
    assert len([line for line in caplog.messages if "are not in the log any more" in line]) == 1


def test_what_was_given_up_can_be_resumed(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=1, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    producer.half()
    sim.run_for(2.5 * PERIOD_S)
    producer.announce()
    (given_up,) = queue(node, CHECK_MAX_TIME_TOPIC)
    assert len(producer.asked) == 1
    assert (
        producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=given_up.offset_message_id).code
        == 0
    )
    sim.run_for(PERIOD_S)
    (_, (header, _)) = producer.asked
    assert (
        producer.end(
            StoredHalf(header.tran_state_table_offset, header.commit_log_offset), COMMIT
        ).code
        == 0
    )
    assert bodies(node) == ["body"]


def test_an_open_one_that_is_resumed_is_asked_about_as_often_as_a_new_one(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=2, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    producer.half()
    sim.run_for(1.5 * PERIOD_S)
    (_, renewed) = queue(node, HALF_TOPIC)
    assert (
        producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=renewed.offset_message_id).code
        == 0
    )
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
    connection.pause_reading()
    sim.run_for(PERIOD_S)
    checks = [half.checks for half in serving(node).parts.halves.open.all()]
    assert 0 < checks.count(1) < 16
    assert checks.count(0) + checks.count(1) == 16
    connection.resume_reading()
    producer.announce()
    sim.run_for(PERIOD_S)
    assert {record.body for _, record in producer.asked} == {
        b"%d" % n + b"." * (1 << 20) for n in range(16)
    }


def test_a_half_message_that_waits_in_memory_for_its_file_can_be_ended(sim: Simulation) -> None:
    node = started(
        sim, ADDRESS, transientStorePoolEnable="true", commitIntervalCommitLog=50_000, **SMALL_LOG
    )
    producer = TransactionProducer(sim, node)
    half = producer.half()
    assert serving(node).store.log.readable_to <= half.at
    assert producer.end(half, COMMIT).code == 0
    assert len(serving(node).parts.halves.open) == 0


def test_a_message_for_a_queue_that_cannot_be_is_given_up(
    sim: Simulation, node: BrokerNode
) -> None:
    """Whoever wrote it: ours would not."""
    producer = TransactionProducer(sim, node)
    broker = serving(node)
    pairs = {"TRAN_MSG": "true", "PGROUP": "P"}

    async def put() -> None:
        broker.parts.halves.put("../x", 0, b"bad", pairs, 0, 0, node.host.now_ms(), bytes(8), 0)

    node.host.call(put)
    half = producer.half(b"good")
    bad = queue(node, HALF_TOPIC)[0]
    assert producer.end(StoredHalf(0, bad.physical_offset), COMMIT).code == 1
    sim.run_for(PERIOD_S)
    assert bodies(node, CHECK_MAX_TIME_TOPIC, 0) == ["bad"]
    assert [record.body for _, record in producer.asked] == [b"good"]
    assert producer.end(half, COMMIT).code == 0
