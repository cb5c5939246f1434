"""Half messages and their ends at a broker, by what its log and queues hold.

See docs/storage/transactions.md and docs/protocol/transactions.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.protocol.headers.transactions import COMMIT, ROLLBACK, UNKNOWN
from roquet.protocol.records.message import (
    HALF_OP_TOPIC,
    HALF_TOPIC,
    UNIQ_KEY,
    join_properties,
    parse_offset_message_id,
)
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.broker.served import SEND, serving, started
from tests.broker.transacting import (
    ADDRESS,
    PERIOD_S,
    StoredHalf,
    TransactionProducer,
    bodies,
    queue,
)
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

RECORDS = Path(__file__).parents[2] / "golden" / "records"


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


def test_records_are_as_apaches_broker_writes_them(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    producer.end(producer.half(TAGS="TagA", KEYS="k"), COMMIT)
    (half,), (end,), (committed,) = (
        queue(node, topic, at) for topic, at in ((HALF_TOPIC, 0), (HALF_OP_TOPIC, 0), ("T", 1))
    )
    for ours, theirs in (
        (half, golden("half")),
        (end, golden("operation")),
        (committed, golden("committed")),
    ):
        assert (ours.sys_flag, ours.topic == theirs.topic or theirs.topic == "GoldenStore") == (
            theirs.sys_flag,
            True,
        )
        assert ours.properties.keys() == theirs.properties.keys()
        assert (ours.born_host == ours.store_host) == (theirs.born_host == theirs.store_host)
    assert (half.queue_id, half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == (
        0,
        "T",
        "1",
    )
    assert (end.body, end.properties) == (b"0", golden("operation").properties)
    assert committed.prepared_offset == half.physical_offset
    assert (committed.born_ms, committed.born_host) == (half.born_ms, half.born_host)
    assert committed.properties == half.properties


def test_a_rolled_back_message_is_never_seen_and_an_unknown_one_stays_open(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    rolled_back, unknown = producer.half(b"rolled back"), producer.half(b"unknown")
    assert producer.end(rolled_back, ROLLBACK).code == 0
    request = Command(
        RequestCode.END_TRANSACTION, {"producerGroup": "P", "commitOrRollback": str(UNKNOWN)}
    )
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
    with pytest.raises(AssertionError, match="half message have 32668 bytes, allowed are 32667"):
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
        ({"producerGroup": "Q"}, "belongs to producer group P"),
        ({"tranStateTableOffset": 1}, "has queue offset 0, not 1"),
        ({"commitLogOffset": 1}, "no half message at physical offset 1"),
        ({"commitLogOffset": 1 << 40}, "no half message"),
        ({"commitOrRollback": 3}, "must be 8 (commit), 12 (rollback) or 0 (unknown)"),
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
    fields = {
        **SEND,
        "b": "T",
        "e": 1,
        "i": join_properties({"PGROUP": "P", "REAL_TOPIC": "../x", "REAL_QID": "0"}),
    }
    answer = producer.call(RequestCode.SEND_MESSAGE_V2, b"body", **fields)
    _, _, at = parse_offset_message_id(answer.fields["msgId"])
    assert producer.end(StoredHalf(0, at), COMMIT).code == 1
    assert (
        producer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=answer.fields["msgId"]).code == 1
    )


def test_a_transaction_ends_once(node: BrokerNode, producer: TransactionProducer) -> None:
    half = producer.half()
    assert [producer.end(half, COMMIT).code for _ in range(2)] == [0, 1]
    assert (bodies(node), bodies(node, HALF_OP_TOPIC, 0)) == (["body"], ["0"])
