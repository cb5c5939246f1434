"""Properties that no client of Apache's writes: a broker takes them or refuses them, goes on, and
starts again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.records import message as m
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.storage.config import StoreConfig
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.broker.transacting import ADDRESS, SMALL_LOG, TransactionProducer, bodies, queue, restart
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

NUMBERS = (m.CHECK_IMMUNITY_SECONDS, m.FIRST_HALF_OFFSET, m.CHECK_TIMES)
ODD = (
    "9" * 5000,
    "-" + "9" * 5000,
    "0" * 5000 + "7",
    "-1",
    "²",
    "٣",
    "+5",
    "1e3",
    "9223372036854775808",
    " 1",
    "\0",
)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ODD, ids=lambda value: ascii(value[:9]))
def test_whatever_a_half_message_says_a_broker_starts_again_and_the_transaction_ends(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer, name: str, value: str
) -> None:
    odd, plain = producer.half(b"odd", "T", 1, **{name: value}), producer.half(b"plain")
    restart(sim, node, "stop")
    producer.announce()
    sim.run_for(70)
    assert producer.end(plain, COMMIT).code == 0
    assert producer.end(odd, COMMIT).code == 0
    assert sorted(bodies(node)) == ["odd", "plain"]
    restart(sim, node, "kill")
    assert len(serving(node).parts.halves.open) == 0


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_nobody_takes_the_place_of_another_transaction(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer, way: str
) -> None:
    """As a message that was asked about once says it, when somebody forwards it with all its
    properties.
    """
    other = TransactionProducer(sim, node, "Q", "10.0.0.8")
    first = producer.half(b"first")
    claims = {m.FIRST_HALF_OFFSET: str(first.offset), m.CHECK_TIMES: "14", "own": "property"}
    copied = other.half(b"copied", "T", 1, **claims)
    restart(sim, node, way)
    producer.announce()
    other.announce()
    sim.run_for(70)
    assert len(producer.asked) == len(other.asked) == 1
    assert other.end(copied, COMMIT).code == 0
    assert producer.end(first, COMMIT).code == 0
    assert sorted(bodies(node)) == ["copied", "first"]
    (message,) = (record for record in queue(node, "T", 1) if record.body == b"copied")
    assert (message.properties["own"], message.properties.keys() & m.OF_HALF_MESSAGES) == (
        "property",
        set(),
    )


# what another broker, or nobody, has put into the store


def stored_before(sim: Simulation, records: dict[str, list[tuple[bytes, bytes]]]) -> None:
    """Let the log begin with records of these topics, which have these properties and bodies; none
    ends with a zero byte, which the store takes from nobody.
    """
    host = sim.host(ADDRESS)
    host.boot()
    config = StoreConfig(
        Path("/store"), [Path("/store/commitlog")], 65536, 20 * 10, index_slots=20, index_entries=40
    )
    store = Store(config, host.now_ms, host.disk)
    store.open()
    for topic, texts in records.items():
        for properties, body in texts:
            queue, born_ms = store.queue(topic, 0), host.now_ms() + len(body)
            store.writer.append_records(
                [
                    NewRecord(
                        queue, body, properties.rstrip(b"\0"), 0, 0, born_ms, bytes(8), bytes(8)
                    )
                ]
            )
    store.end_turn()
    store.close()
    host.kill()


def half_text(group: str, **more: str) -> bytes:
    return m.join_properties(
        {"TRAN_MSG": "true", "PGROUP": group, "REAL_TOPIC": "T", "REAL_QID": "1", **more}
    ).encode()


def test_a_claim_that_another_broker_let_through_is_not_believed(sim: Simulation) -> None:
    claims = {m.FIRST_HALF_OFFSET: "0"}
    stored_before(
        sim, {m.HALF_TOPIC: [(half_text("P"), b"first"), (half_text("P", **claims), b"copied")]}
    )
    node = started(sim, ADDRESS, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    sim.run_for(70)
    assert sorted(record.body for _, record in producer.asked) == [b"copied", b"first"]
    for header, _ in producer.asked:
        fields = {
            "tranStateTableOffset": header.tran_state_table_offset,
            "commitLogOffset": header.commit_log_offset,
        }
        request = {"producerGroup": "P", "msgId": "m", "commitOrRollback": COMMIT, **fields}
        assert producer.call(RequestCode.END_TRANSACTION, **request).code == 0
    assert sorted(bodies(node)) == ["copied", "first"]


ODD_TEXT = st.one_of(
    st.sampled_from(
        (
            "",
            "-1",
            "0",
            "1",
            "7",
            "9" * 20,
            "1" + "0" * 400,
            "9" * 5000,
            "\0",
            "²",
            "٣",
            "T",
            "../x",
            "%RETRY%g",
        )
    ),
    st.text(max_size=5),
)
NAMES = (
    *(
        m.FIRST_HALF_OFFSET,
        m.CHECK_TIMES,
        m.CHECK_IMMUNITY_SECONDS,
        m.TRAN_MSG,
        m.PRODUCER_GROUP,
        m.DELAY,
    ),
    *(
        m.REAL_TOPIC,
        m.REAL_QID,
        m.UNIQ_KEY,
        m.KEYS,
        m.TAGS,
        m.RETRY_TOPIC,
        m.ORIGIN_MESSAGE_ID,
        m.WAIT,
        m.CLUSTER,
    ),
)
PAIRS = st.dictionaries(st.sampled_from(NAMES), ODD_TEXT, max_size=6)
PROPERTIES = st.one_of(
    PAIRS.map(lambda pairs: m.join_properties(pairs).encode("utf-8", "surrogatepass")),
    st.binary(max_size=40),
    st.lists(
        st.sampled_from((b"\1", b"\2", b"DELAY", b"REAL_QID", b"1", b"\xff")), max_size=12
    ).map(b"".join),
)
RECORDS = st.lists(
    st.tuples(
        PROPERTIES, st.one_of(st.sampled_from((b"0", b"1,", b"9" * 5000)), st.binary(max_size=9))
    )
)
STORES = st.fixed_dictionaries(
    dict.fromkeys((m.HALF_TOPIC, m.HALF_OP_TOPIC, m.SCHEDULE_TOPIC, "%RETRY%g"), RECORDS),
)


@settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(STORES)
def test_a_broker_starts_and_serves_whatever_is_in_its_store(
    records: dict[str, list[tuple[bytes, bytes]]],
) -> None:
    with Simulation(1) as sim:
        stored_before(sim, records)
        node = started(sim, ADDRESS, **SMALL_LOG)
        client, producer = Client(sim, sim.host("10.0.0.7")), TransactionProducer(sim, node)
        half = producer.half(b"of a transaction")
        assert (
            send(client, b"delayed", "D", m.join_properties({m.DELAY: "1"})).code
            == ResponseCode.SUCCESS
        )
        sim.run_for(130)
        assert bodies(node, "D", 0) == ["delayed"]
        for offset in range(len(records["%RETRY%g"])):
            (at, *_) = serving(node).store.queue("%RETRY%g", 0).entry(offset) or (0,)
            fields = {
                "group": "g",
                "offset": at,
                "delayLevel": 0,
                "originMsgId": "²",
                "originTopic": "T",
            }
            assert client.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields).code in (0, 1)
        assert producer.end(half, COMMIT).code == 0
        assert bodies(node).count("of a transaction") == 1
        restart(sim, node, "stop")
        assert bodies(node).count("of a transaction") == 1
