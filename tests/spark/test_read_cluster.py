"""The network part, over real sockets: planning asks for bounds, reading survives a master's death or says why not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from roquet.errors import RoquetError, RouteNotFound
from roquet.protocol.message import MessageQueue
from roquet.spark.options import ReadOptions
from roquet.spark.queue_read import NoProgress
from roquet.spark.ranges import Bounds, DataLoss, QueueRange
from roquet.spark.read_cluster import queue_bounds, read
from roquet.spark.schema import ARROW_SCHEMA
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record

SCHEMA = pa.schema([ARROW_SCHEMA.field(name) for name in ("brokerName", "queueOffset")])
QUEUE = MessageQueue("orders", "broker-a", 0)


def queues(*sizes: int) -> Queues:
    return {("orders", index): [record(index, offset) for offset in range(size)] for index, size in enumerate(sizes)}


def options(stand_in: StandIn, **more: str) -> ReadOptions:
    given = {"nameserver": stand_in.name_server, "subscribe": "orders", "noprogresstimeoutms": "2000"}
    return ReadOptions.of_batch(given | more)


def offsets(part: QueueRange, wanted: ReadOptions) -> list[int]:
    return [offset for batch in read(part, wanted, SCHEMA) for offset in batch["queueOffset"].to_pylist()]


def test_planning_finds_every_queue_and_its_bounds() -> None:
    held = queues(5, 0)
    held["orders", 0] = held["orders", 0][2:]
    with cluster(Broker(0, held)) as stand_in:
        assert queue_bounds(options(stand_in)) == {
            QUEUE: Bounds(2, 5),
            MessageQueue("orders", "broker-a", 1): Bounds(0, 0),
        }


def test_an_unknown_topic_is_named() -> None:
    with cluster(Broker(0, queues(5))) as stand_in, pytest.raises(RouteNotFound, match="others"):
        queue_bounds(options(stand_in, subscribe="orders,others"))


def test_planning_without_a_name_server_fails_in_time() -> None:
    wanted = ReadOptions.of_batch({"nameserver": "127.0.0.1:1", "subscribe": "orders", "noprogresstimeoutms": "50"})
    with pytest.raises(NoProgress, match=r"orders: no answer in 0\.05 s, last cannot connect to"):
        queue_bounds(wanted)


@pytest.mark.parametrize("tags", ["*", "T1", "T0||T2"])
def test_a_range_is_read_with_its_tags_only(tags: str) -> None:
    with cluster(Broker(0, queues(100))) as stand_in:
        found = offsets(QueueRange(QUEUE, 10, 90), options(stand_in, tags=tags))
    assert found == [offset for offset in range(10, 90) if tags == "*" or f"T{offset % 3}" in tags]


@pytest.mark.parametrize("read_from", ["any", "slave"])
def test_a_master_that_dies_is_survived_on_its_slave(read_from: str) -> None:
    master, slave = Broker(0, queues(200)), Broker(1, queues(200))
    master.dies_after_pulls = 3
    with cluster(master, slave) as stand_in:
        assert offsets(QueueRange(QUEUE, 0, 200), options(stand_in, readfrom=read_from)) == list(range(200))
    assert slave.pulls >= 3
    assert (master.pulls == 0) == (read_from == "slave")


def test_planning_survives_a_dead_master_too() -> None:
    master, slave = Broker(0, queues(20)), Broker(1, queues(20))
    with cluster(master, slave) as stand_in:
        stand_in.do(master.die)
        assert queue_bounds(options(stand_in)) == {QUEUE: Bounds(0, 20)}


def test_a_master_that_dies_without_a_slave_ends_in_an_error_in_time() -> None:
    master = Broker(0, queues(200))
    master.dies_after_pulls = 3
    with cluster(master) as stand_in, pytest.raises(NoProgress, match=r"no answer for offset \d+ in 0\.3 s") as error:
        offsets(QueueRange(QUEUE, 0, 200), options(stand_in, noprogresstimeoutms="300"))
    assert error.value.__notes__ == ["while reading orders@broker-a:0[0, 200)"]


def test_a_slave_that_never_gets_the_rest_ends_in_an_error() -> None:
    master, slave = Broker(0, queues(200)), Broker(1, queues(150))
    master.dies_after_pulls = 3
    with cluster(master, slave) as stand_in, pytest.raises(DataLoss, match="wanted offsets 150 to 199, min 0, max 150"):
        offsets(QueueRange(QUEUE, 0, 200), options(stand_in, noprogresstimeoutms="300"))


def test_a_read_given_up_half_way_leaves_nothing_open() -> None:
    with cluster(Broker(0, queues(200))) as stand_in:
        batches = read(QueueRange(QUEUE, 0, 200), options(stand_in), SCHEMA)
        assert next(batches).num_rows == 200
        batches.close()  # type: ignore[attr-defined]


def test_a_wrong_kind_of_answer_names_the_range() -> None:
    held = queues(10)
    held["orders", 0][3] = record(0, 3, b"no stream", sys_flag=1)
    schema = pa.schema([ARROW_SCHEMA.field("body")])
    with cluster(Broker(0, held)) as stand_in, pytest.raises(RoquetError, match="does not decompress") as error:
        list(read(QueueRange(QUEUE, 0, 10), options(stand_in), schema))
    assert error.value.__notes__ == ["while reading orders@broker-a:0[0, 10)"]
