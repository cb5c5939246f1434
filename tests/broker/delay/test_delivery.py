"""Delayed messages at a whole broker on virtual time (docs/storage/delayed-messages.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.background import flush
from roquet.broker.config.delay_levels import DelayLevels, put_aside, waiting_queue
from roquet.broker.delay.delivery import DelayedDelivery
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.offsets.consumer_offsets import DelayOffsets
from roquet.common.limited_log import LimitedLog
from roquet.common.runtime import Runtime
from roquet.protocol.bodies.tables import DelayOffsetTable
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import (
    SCHEDULE_TOPIC,
    join_properties,
    split_properties,
    tag_code,
)
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.storage.config import StoreConfig
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store
from tests.broker.harness import Client
from tests.broker.served import SEND, arrived, bodies, flush_and_drop, send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import found_by_key

ADDRESS = "10.0.0.1"
LATE_MS_MAX = 20


def clock_ms(sim: Simulation) -> int:
    return sim.host(ADDRESS).now_ms()


def send_delayed(
    client: Client, level: object, body: bytes = b"b", topic: str = "T", **more: str
) -> Any:
    return send(client, body, topic, join_properties({"DELAY": str(level), **more}))


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS)


@pytest.fixture
def client(sim: Simulation, node: BrokerNode) -> Client:
    return Client(sim, sim.host("10.0.0.9"))


@pytest.mark.parametrize(("level", "seconds"), [(1, 1), (3, 10), (6, 120)])
def test_a_message_comes_when_its_level_says_and_not_before(
    sim: Simulation, node: BrokerNode, client: Client, level: int, seconds: int
) -> None:
    sent_ms = clock_ms(sim)
    assert send_delayed(client, level).code == ResponseCode.SUCCESS
    stored_ms = clock_ms(sim)
    sim.run_for(seconds - 0.1)
    assert arrived(node) == []
    sim.run_for(0.2)
    (record,) = arrived(node)
    assert sent_ms + seconds * 1000 <= record.store_ms <= stored_ms + seconds * 1000 + LATE_MS_MAX


@pytest.mark.parametrize(
    "settings",
    [
        {"enableConsumeQueueExt": "true"},
        {"transientStorePoolEnable": "true", "commitIntervalCommitLog": 500},
        {"flushDiskType": "SYNC_FLUSH"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_it_comes_in_time_whatever_the_store_is_set_to(
    sim: Simulation, settings: dict[str, object]
) -> None:
    node = started(sim, ADDRESS, **settings)
    client = Client(sim, sim.host("10.0.0.9"))
    for _ in range(30):
        send_delayed(client, 2, TAGS="a")
    sim.run_for(4.5)
    assert bodies(node) == []
    sim.run_for(1.2)
    assert bodies(node) == [b"b"] * 30


def test_what_waits_in_memory_for_the_log_is_not_taken_for_lost(sim: Simulation) -> None:
    late = dict.fromkeys(
        ("flushCommitLogThoroughInterval", "flushConsumeQueueThoroughInterval"), 3_600_000
    )
    node = started(
        sim, ADDRESS, transientStorePoolEnable="true", commitIntervalCommitLog=3000, **late
    )
    client = Client(sim, sim.host("10.0.0.9"))
    for _ in range(3):
        send_delayed(client, 1)
    sim.run_for(2)
    assert serving(node).store.max_offset("T", 0) == 0
    sim.run_for(5)
    assert bodies(node) == [b"b"] * 3


def test_the_answer_tells_of_the_queue_that_was_asked_for(client: Client) -> None:
    answer = send_delayed(client, 1)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0")
    assert send_delayed(client, 1).fields["queueOffset"] == "1"


def test_it_is_the_message_that_was_sent(sim: Simulation, node: BrokerNode, client: Client) -> None:
    text = join_properties(
        {"DELAY": "2", "TAGS": "a", "KEYS": "k", "UNIQ_KEY": "U", "WAIT": "true"}
    )
    fields = {**SEND, "b": "T", "e": 1, "f": 1, "g": 123_456, "h": 7, "i": text}
    assert client.call(RequestCode.SEND_MESSAGE_V2, b"body", **fields).code == 0
    (waiting,) = arrived(node, SCHEDULE_TOPIC, 1)
    sim.run_for(5.1)
    (record,) = arrived(node, "T", 1)
    assert (record.body, record.flag, record.born_ms, record.sys_flag) == (b"body", 7, 123_456, 1)
    assert (record.born_host, record.store_host) == (waiting.born_host, waiting.store_host)
    expected = {"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "U", "CLUSTER": "DefaultCluster"}
    assert split_properties(record.properties_text) == {
        **expected,
        "DELAY": "2",
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
    }
    assert (waiting.topic, waiting.properties_text) == (SCHEDULE_TOPIC, record.properties_text)
    store = serving(node).store
    assert [entry[2] for entry in store.queue("T", 1).entries(0, 1)] == [tag_code("a")]
    assert [entry[2] for entry in store.queue(SCHEDULE_TOPIC, 1).entries(0, 1)] == [
        waiting.store_ms + 5000
    ]
    for topic in ("T", SCHEDULE_TOPIC):
        assert len(found_by_key(store, topic, "U", 9, 0, 2**62).records) == 1, (
            "found by both topics: docs/pitfalls.md#trap-s23"
        )


def test_messages_of_a_level_come_in_their_order(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    sent = [b"%d" % number for number in range(40)]
    for body in sent:
        send_delayed(client, 2, body * 3)
    sim.run_for(6)
    assert bodies(node) == [body * 3 for body in sent]


def test_a_level_beyond_the_last_is_the_last(sim: Simulation) -> None:
    node = started(sim, ADDRESS, messageDelayLevel="1s 3s")
    client = Client(sim, sim.host("10.0.0.9"))
    send_delayed(client, 99)
    sim.run_for(2.9)
    assert bodies(node) == []
    sim.run_for(0.2)
    assert bodies(node) == [b"b"]
    assert arrived(node)[0].properties["DELAY"] == "2"


@pytest.mark.parametrize("level", [0, -1])
def test_no_level_is_no_delay(node: BrokerNode, client: Client, level: int) -> None:
    send_delayed(client, level)
    assert bodies(node) == [b"b"]


def test_a_level_that_is_no_number_is_refused(node: BrokerNode, client: Client) -> None:
    answer = send_delayed(client, "soon")
    assert (answer.code, answer.remark) == (
        13,
        "DELAY is 'soon': a delay level is a number from 0 to 18",
    )
    assert bodies(node) == []


def test_a_batch_is_not_delayed(node: BrokerNode, client: Client) -> None:
    item, delayed = batch_item(0, b"b", b""), batch_item(0, b"b", b"DELAY\x011")
    for body, properties in ((item, "DELAY\x011"), (delayed, "")):
        fields = {**SEND, "b": "T", "e": 0, "i": properties, "m": "true"}
        answer = client.call(RequestCode.SEND_BATCH_MESSAGE, body, **fields)
        assert (answer.code, answer.remark) == (
            13,
            "messages of a batch cannot be delayed: send them one by one",
        )
    assert bodies(node) == []


def test_a_delayed_message_that_is_forwarded_as_it_came_is_delayed_again_and_goes_where_it_is_sent(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    send_delayed(client, 1)
    sim.run_for(1.1)
    (record,) = arrived(node)
    send(client, b"forwarded", "Other", record.properties_text)
    assert bodies(node, "Other") == []
    sim.run_for(1.1)
    assert bodies(node, "Other") == [b"forwarded"]
    assert bodies(node) == [b"b"]


# life


def delay_offsets(node: BrokerNode) -> dict[int, int]:
    return dict(serving(node).parts.tables.delay_offsets.to_table().offsets)


def restart(sim: Simulation, node: BrokerNode) -> None:
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)


def test_what_waits_survives_a_stop(sim: Simulation, node: BrokerNode, client: Client) -> None:
    send_delayed(client, 1, b"before")
    sim.run_for(2)
    send_delayed(client, 2, b"in time")
    send_delayed(client, 1, b"late")
    node.stop()
    sim.run_for(3)
    restart(sim, node)
    assert delay_offsets(node) == {1: 1}
    sim.run_for(0.1)
    assert bodies(node) == [b"before", b"late"]
    sim.run_for(3)
    assert bodies(node) == [b"before", b"late", b"in time"]


def test_a_killed_broker_goes_on_where_it_noted_last(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    for _ in range(3):
        send_delayed(client, 1)
    sim.run_for(12)
    send_delayed(client, 1, b"again")
    sim.run_for(2)
    assert delay_offsets(node) == {1: 3}
    node.host.kill()
    restart(sim, node)
    sim.run_for(1)
    assert bodies(node) == [b"b"] * 3 + [b"again"] * 2


def test_progress_is_saved_each_ten_seconds_once_the_messages_are_on_disk(sim: Simulation) -> None:
    node = started(
        sim,
        ADDRESS,
        flushCommitLogThoroughInterval=3_600_000,
        flushConsumeQueueThoroughInterval=3_600_000,
    )
    client = Client(sim, sim.host("10.0.0.9"))
    send_delayed(client, 1)
    sim.run_for(5)
    store = serving(node).store
    assert bodies(node) == [b"b"]
    assert (delay_offsets(node), store.log.flushed_to) == ({}, 0)
    sim.run_for(6)
    assert (delay_offsets(node), store.log.flushed_to) == ({1: 1}, store.log.end)
    node.host.crash()
    restart(sim, node)
    sim.run_for(5)
    assert bodies(node) == [b"b"]


def test_a_power_failure_that_takes_what_was_delivered_takes_it_from_nobody(
    sim: Simulation,
) -> None:
    node = started(
        sim,
        ADDRESS,
        flushCommitLogThoroughInterval=3_600_000,
        flushConsumeQueueThoroughInterval=3_600_000,
    )
    client = Client(sim, sim.host("10.0.0.9"))
    send_delayed(client, 1)
    store, runtime = serving(node).store, node.host.runtime()
    assert node.host.call(lambda: flush(store, runtime, LimitedLog(logging.getLogger())))
    sim.run_for(2)
    assert bodies(node) == [b"b"]
    crashed_ms = clock_ms(sim)
    node.host.crash()
    restart(sim, node)
    sim.run_for(0.1)
    assert [record.body for record in arrived(node) if record.store_ms >= crashed_ms] == [b"b"]


def test_offsets_beyond_the_queue_are_set_to_what_there_is(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    send_delayed(client, 1, b"one")
    sim.run_for(2)
    serving(node).parts.tables.delay_offsets.restore(DelayOffsetTable({1: 99, 2: 5}))
    node.stop()
    restart(sim, node)
    sim.run_for(1)
    send_delayed(client, 1, b"two")
    send_delayed(client, 2, b"three")
    sim.run_for(6)
    assert bodies(node) == [b"one", b"two", b"three"]


def test_with_fewer_levels_than_before_what_waits_in_the_others_still_comes(
    sim: Simulation,
) -> None:
    node = started(sim, ADDRESS, messageDelayLevel="1s 2s 4s")
    client = Client(sim, sim.host("10.0.0.9"))
    send_delayed(client, 3)
    node.stop()
    shorter = started(sim, ADDRESS, messageDelayLevel="1s 10s")
    sim.run_for(3)
    assert bodies(shorter) == []
    sim.run_for(2)
    assert bodies(shorter) == [b"b"]


HOUR_MS = 3_600_000


@pytest.mark.parametrize("step_ms", [-24 * HOUR_MS, -HOUR_MS, -500, 500, 2 * HOUR_MS, 24 * HOUR_MS])
def test_a_clock_that_is_set_changes_no_delay(
    sim: Simulation, node: BrokerNode, client: Client, step_ms: int
) -> None:
    send_delayed(client, 2, b"before")
    sim.run_for(1)
    node.host.clock_ahead_ms += step_ms
    send_delayed(client, 2, b"after")
    sim.run_for(3.9)
    assert bodies(node) == []
    sim.run_for(0.2)
    assert bodies(node) == [b"before"]
    sim.run_for(0.7)
    assert bodies(node) == [b"before"]
    sim.run_for(1)
    assert bodies(node) == [b"before", b"after"]


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, 1000 * 24 * HOUR_MS])
def test_a_clock_that_was_ahead_for_a_moment_lets_nothing_come_at_once(
    sim: Simulation, node: BrokerNode, client: Client, ahead_ms: int
) -> None:
    node.host.clock_ahead_ms += ahead_ms
    send_delayed(client, 0, b"at once")
    node.host.clock_ahead_ms -= ahead_ms
    send_delayed(client, 4)
    sim.run_for(29.9)
    assert bodies(node) == [b"at once"]
    sim.run_for(0.2)
    assert bodies(node) == [b"at once", b"b"]


def test_after_a_restart_a_time_of_a_clock_that_was_ahead_costs_a_whole_delay_at_most(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    node.host.clock_ahead_ms += HOUR_MS
    send_delayed(client, 4)
    node.host.clock_ahead_ms -= HOUR_MS
    sim.run_for(10)
    node.stop()
    node = started(sim, ADDRESS)
    sim.run_for(29)
    assert bodies(node) == []
    sim.run_for(1.5)
    assert bodies(node) == [b"b"]


def test_nothing_is_looked_at_while_nothing_waits(sim: Simulation) -> None:
    """Each look at what waits asks what time it is."""
    host, folder, looks = sim.host(ADDRESS), Path("/store"), 0
    host.boot()
    config = StoreConfig(
        folder, [folder / "commitlog"], 1 << 20, 20_000, delay_levels_ms=(1000, 10_000)
    )
    store = Store(config, host.now_ms, host.disk)
    store.open()

    def now_ms() -> int:
        nonlocal looks
        looks += 1
        return host.now_ms()

    def turn_ended() -> None:
        store.end_turn()
        delayed.turn_ended()

    turn, levels = EndOfTurn(turn_ended), DelayLevels(config.delay_levels_ms)
    clock = StampClock(Runtime(now_ms, steady_ms=lambda: sim.now_s * 1000))
    clock.follow(store.log)
    looks = 0
    delayed = DelayedDelivery(
        store, WriteGate(), levels, DelayOffsets(), turn, clock, lambda *_: None
    )

    async def put_aside_for_ten_seconds() -> None:
        properties = join_properties(put_aside({}, 2, "T", 0)).encode()
        record = NewRecord(
            store.queue(*waiting_queue(2)),
            b"b",
            properties,
            0,
            0,
            host.now_ms(),
            bytes(8),
            bytes(8),
        )
        store.writer.append_records([record])
        turn.due()

    host.start(delayed.run)
    sim.run_for(300)
    assert looks == 0
    host.call(put_aside_for_ten_seconds)
    sim.run_for(9.9)
    assert store.max_offset("T", 0) == 0
    assert looks == 1, "when is it due?"
    sim.run_for(300)
    assert store.max_offset("T", 0) == 1
    assert looks == 2, "and none since"
    store.abandon()


# trouble


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level("WARNING", "roquet.broker")
    return lambda: [
        record.getMessage() for record in caplog.records if "delay" in record.getMessage()
    ]


def test_a_full_drive_lets_them_wait_and_says_so_once(
    sim: Simulation, node: BrokerNode, client: Client, logged: Callable[[], list[str]]
) -> None:
    sim.run_for(1.5)  # the drive is looked at after a second, and then each ten seconds
    send_delayed(client, 1)
    serving(node).parts.write_gate.close("no room")
    sim.run_for(8)
    assert bodies(node) == []
    serving(node).parts.write_gate.open()
    sim.run_for(0.2)
    assert bodies(node) == [b"b"]
    assert logged() == [
        "delayed messages cannot be delivered, will be retried: level=1 error=no room",
        "delayed messages are delivered again",
    ]


def test_what_does_not_say_where_it_belongs_holds_nothing_up(
    sim: Simulation, node: BrokerNode, client: Client, logged: Callable[[], list[str]]
) -> None:
    store = serving(node).store
    texts = [
        "",
        "REAL_TOPIC\x01T",
        "REAL_TOPIC\x01a b\x02REAL_QID\x010",
        "REAL_TOPIC\x01T\x02REAL_QID\x01-1",
    ]
    texts += [
        "REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
        "XREAL_TOPIC\x01T\x02REAL_QID\x010",
    ]
    texts += [
        "REAL_TOPIC\x01T\x02REAL_QID\x010",
        "XREAL_TOPIC\x01V\x02REAL_QID\x010\x02REAL_TOPIC\x01T",
    ]

    async def put() -> None:
        queue = store.queue(SCHEDULE_TOPIC, 0)
        for number, text in enumerate(texts):
            text = f"{text}\x02DELAY\x011"
            store.writer.append_records(
                [NewRecord(queue, b"%d" % number, text.encode(), 0, 0, 1, bytes(8), bytes(8))]
            )
        serving(node).parts.turn.due()

    node.host.call(put)
    send_delayed(client, 1, b"after")
    sim.run_for(2)
    assert bodies(node) == [b"6", b"7", b"after"]
    assert len(logged()) == 6
    assert serving(node).parts.tables.delay_offsets.offsets == {1: 9}


def test_what_the_log_has_lost_is_passed_over(
    sim: Simulation, node: BrokerNode, client: Client, logged: Callable[[], list[str]]
) -> None:
    for number in range(40):
        send_delayed(client, 1 if number < 39 else 2, bytes([65 + number]) * 300)
    store = serving(node).store
    sim.run_for(0.5)
    node.host.call(lambda: flush_and_drop(node))
    assert store.log.start > 0
    sim.run_for(6)
    assert 0 < len(bodies(node)) < 30
    assert bodies(node)[-1] == bytes([65 + 39]) * 300
    assert any(
        text.startswith("delayed messages are not in the log any more, they are skipped: level=1 ")
        for text in logged()
    )


@pytest.mark.parametrize("size", [-5, 0, 90, 5000, 2**31 - 1])
def test_an_entry_that_cannot_be_costs_its_own_message_only(
    sim: Simulation, node: BrokerNode, client: Client, size: int
) -> None:
    for number in range(9):
        send_delayed(client, 1, b"%d" % number)
    queue = serving(node).store.queue(SCHEDULE_TOPIC, 0)
    entries = list(queue.entries(0, 9))
    for offset, (at, right_size, due_ms) in enumerate(entries[4:], 4):
        queue.put(offset, at, size if offset == 4 else right_size, due_ms, 0)
    sim.run_for(1.2)
    assert bodies(node) == [b"%d" % number for number in range(9) if number != 4]
    assert serving(node).parts.tables.delay_offsets.offsets == {1: 9}
