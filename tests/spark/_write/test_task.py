"""One task of a write, on a real broker that stops answering, dies and comes back."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from roquet.client._send.queue_choice import queue_for_sharding_key
from roquet.errors import CallTimeout, ResponseError, RouteNotFound
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._write.rows import ROW_ID, RowError
from roquet.spark._write.send import SinkError
from roquet.spark._write.task import ROWS_MAX, Task, limited_slices, write
from tests.interop import wire
from tests.interop.ground import BROKER, QUICK, Ground
from tests.spark.conftest import QUEUES
from tests.spark.written import ROW, numbered, numbers, stored, then

pytestmark = pytest.mark.process

EO = DeliveryGuarantee.EFFECTIVELY_ONCE
TASK = Task("0" * 32, 5, 1)


def options(
    ground: Ground,
    topic: str,
    delivery: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
    **more: Any,
) -> WriteOptions:
    return WriteOptions(ground.namesrv, topic, delivery=delivery, batch_rows=20, **more)


class Died(Exception):  # noqa: N818
    """An attempt that is over before its time."""


def die() -> None:
    raise Died


def test_every_row_is_stored_once_and_spread_over_the_queues(ground: Ground, topic: str) -> None:
    written = write(numbered(1000), TASK, options(ground, topic))
    assert (written.rows, written.requests, written.retries) == (1000, 50, 0)
    found = stored(ground.namesrv, topic)
    assert sorted(numbers(found)) == list(range(1000))
    assert len({record.queue.queue_id for record in found}) == QUEUES
    assert ROW_ID not in found[0].properties


def test_rows_of_one_key_are_in_one_queue_in_their_order(ground: Ground, topic: str) -> None:
    batches = zip(numbered(500, key="a"), numbered(500, key="b"), strict=True)
    write(chain.from_iterable(batches), TASK, options(ground, topic))
    found = stored(ground.namesrv, topic)
    queues = [MessageQueue(topic, BROKER, number) for number in range(QUEUES)]
    for key in ("a", "b"):
        queue_id = queue_for_sharding_key(queues, key).queue_id
        in_queue = [int(record.body) for record in found if record.queue.queue_id == queue_id]
        assert Counter(in_queue).keys() == set(range(500))
        assert sorted(in_queue) == in_queue or queue_for_sharding_key(
            queues, "a"
        ) == queue_for_sharding_key(queues, "b")


def test_an_attempt_finds_what_those_before_it_stored(ground: Ground, topic: str) -> None:
    wanted = options(ground, topic, EO)
    for count in (130, 370):
        with pytest.raises(Died):
            write(then(numbered(count), die), TASK, wanted)
    before = len(stored(ground.namesrv, topic))
    assert before > 0
    written = write(numbered(1000), TASK, wanted)
    assert (written.found, written.rows) == (before, 1000 - before)
    assert sorted(numbers(stored(ground.namesrv, topic))) == list(range(1000))
    assert write(numbered(1000), TASK, wanted).found == 1000


def test_other_partitions_and_batches_are_not_taken_for_ones_own(
    ground: Ground, topic: str
) -> None:
    wanted = options(ground, topic, EO)
    tasks = [TASK, Task(TASK.run, 5, 11), Task(TASK.run, 51, 1), Task("1" * 32, 5, 1)]
    assert [write(numbered(40), task, wanted).found for task in tasks] == [0, 0, 0, 0]
    assert Counter(numbers(stored(ground.namesrv, topic))) == dict.fromkeys(range(40), 4)


def test_what_others_send_to_the_topic_does_not_stop_the_search_for_rows(
    ground: Ground, topic: str
) -> None:
    """Bodies that are no zlib although they say so: only those of our rows are decompressed."""
    wanted = options(ground, topic, EO, compress_from_size=1)
    with pytest.raises(Died):
        write(then(numbered(3), die), TASK, wanted)
    for queue_id in range(QUEUES):
        fields = wire.send_fields(topic, queue_id) | {"sysFlag": "1"}
        assert wire.ask(ground.broker.address, wire.SEND_MESSAGE, fields, b"no zlib").code == 0
    written = write(numbered(5), TASK, wanted)
    assert written.found + written.rows == 5
    assert written.found > 0


def test_compressed_rows_are_found_again(ground: Ground, topic: str) -> None:
    body = b"large " * 1000
    batch = pa.RecordBatch.from_pylist([{"body": body, "shardingKey": None}], ROW)
    wanted = options(ground, topic, EO, compress_from_size=100)
    assert write(iter([batch]), TASK, wanted).rows == 1
    assert write(iter([batch]), TASK, wanted).found == 1
    (record,) = stored(ground.namesrv, topic)
    assert len(record.stored_body) < len(body)


def test_rows_that_differ_when_a_batch_runs_again_are_refused(ground: Ground, topic: str) -> None:
    wanted = options(ground, topic, EO)
    write(numbered(50), TASK, wanted)
    with pytest.raises(
        SinkError, match="row 0 of partition 1: an earlier attempt stored another body for it"
    ):
        write(reversed(list(numbered(50, per_batch=10))), TASK, wanted)
    with pytest.raises(SinkError, match="20 rows that an earlier attempt stored are missing"):
        write(numbered(30), TASK, wanted)
    assert len(stored(ground.namesrv, topic)) == 50


@pytest.mark.parametrize("delivery", list(DeliveryGuarantee))
def test_a_broker_that_dies_and_comes_back_loses_nothing(
    ground: Ground, topic: str, delivery: DeliveryGuarantee
) -> None:
    def restart() -> None:
        ground.broker.kill()
        threading.Thread(target=ground.broker.start).start()

    batches = chain(then(numbered(300), restart), numbered(600))
    written = write(batches, TASK, options(ground, topic, delivery, timeout_ms=2000, retries=30))
    assert written.retries > 0
    found = Counter(numbers(stored(ground.namesrv, topic)))
    assert found.keys() == set(range(600))
    if delivery is EO:
        assert found == Counter([*range(300), *range(600)])


def test_a_row_whose_answer_is_late_is_not_sent_again(ground: Ground, topic: str) -> None:
    """The broker stands still with requests in its sockets, and stores them when it goes on."""
    pid = ground.broker.pid

    def stand_still() -> None:
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(1.5, os.kill, (pid, signal.SIGCONT)).start()

    written = write(
        chain(then(numbered(100), stand_still), numbered(400)),
        TASK,
        options(ground, topic, EO, timeout_ms=500, retries=30),
    )
    assert written.retries > 0
    assert Counter(numbers(stored(ground.namesrv, topic))) == Counter([*range(100), *range(400)])


def test_a_row_that_cannot_be_sent_ends_the_task(ground: Ground, topic: str) -> None:
    bad = pa.RecordBatch.from_pylist([{"body": None, "shardingKey": None}], ROW)
    with pytest.raises(RowError, match="row 200 of partition 1: body is null") as error:
        write(chain(numbered(200), [bad]), TASK, options(ground, topic))
    assert error.value.__notes__ == ["while writing partition 1, batch 5"]


def test_rows_are_not_asked_for_before_there_is_room(ground: Ground, topic: str) -> None:
    """The broker stands still: what is on the way to it is bounded, however much there is."""
    pid, asked = ground.broker.pid, 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal asked
        while True:
            asked += 1
            yield from numbered(20)

    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(CallTimeout):
            write(endless(), TASK, options(ground, topic, timeout_ms=1000, retries=0))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert 0 < asked <= 20


@pytest.mark.parametrize(
    ("rows", "size", "cut"),
    [
        (25_000, 5, [ROWS_MAX, ROWS_MAX, 5_000]),
        (3_000, 1_000, [1_044, 1_044, 912]),
        (3, 2_000_000, [1, 1, 1]),
    ],
)
def test_so_many_rows_are_encoded_at_once_as_memory_has_room_for(
    rows: int, size: int, cut: list[int]
) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"%*d" % (size, row) for row in range(rows)])], ["body"]
    )
    found = list(limited_slices(batch, 1024 * 1024))
    assert [part.num_rows for part in found] == cut
    assert (
        pa.Table.from_batches(found).column("body").to_pylist() == batch.column("body").to_pylist()
    )


def test_large_rows_in_a_row_are_not_encoded_at_once() -> None:
    """However small those before and behind them are."""
    sizes = [1] * 500 + [400_000] * 7 + [1] * 500
    batch = pa.RecordBatch.from_arrays([pa.array([bytes(size) for size in sizes])], ["body"])
    found = list(limited_slices(batch, 1024 * 1024))
    assert [part.num_rows for part in found] == [502, 2, 2, 501]
    assert (
        pa.Table.from_batches(found).column("body").to_pylist() == batch.column("body").to_pylist()
    )


def test_what_a_broker_refuses_ends_the_task(ground: Ground) -> None:
    with pytest.raises(ResponseError):
        write(numbered(10), TASK, options(ground, "SCHEDULE_TOPIC_XXXX", retries=1))


def test_less_safe_rows_are_counted_or_end_the_task(
    topic: str, ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """A SYNC_MASTER without a slave stores them all the same."""
    with Ground(is_apache=False, broker={**QUICK, "brokerRole": "SYNC_MASTER"}) as lonely:
        lonely.create_topic("T", 2)
        with caplog.at_level(logging.WARNING):
            written = write(numbered(100), TASK, options(lonely, "T"))
        assert written.unsafe == {"SLAVE_NOT_AVAILABLE": 100}
        assert len([each for each in caplog.records if "SLAVE_NOT_AVAILABLE" in each.message]) == 1
        with pytest.raises(SinkError, match=r"SLAVE_NOT_AVAILABLE.*failOnUnsafe=false"):
            write(numbered(100), TASK, options(lonely, "T", fail_on_unsafe=True))


def test_a_topic_that_is_nowhere_is_said() -> None:
    with (
        Ground(is_apache=False, broker={**QUICK, "autoCreateTopicEnable": "false"}) as strict,
        pytest.raises(RouteNotFound, match="no broker has topic nowhere"),
    ):
        write(numbered(1), TASK, options(strict, "nowhere", retries=1))
