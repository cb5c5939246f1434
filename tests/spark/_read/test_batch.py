"""The network part, over real sockets: planning asks for bounds, reading survives a master's death
or says why not.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from roquet.errors import OptionError, RouteNotFound
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.corrupt import CORRUPT, TOLD_MAX
from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._options.ranges import MasterAway, QueueRange
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.batch import CorruptBody, plan, read
from roquet.spark._read.queue import NoProgress
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record

SCHEMA = pa.schema([ARROW_SCHEMA.field(name) for name in ("brokerName", "queueOffset")])
QUEUE, QUEUE_2 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 2)


def queues(*sizes: int) -> Queues:
    return {
        ("orders", index): [record(index, offset) for offset in range(size)]
        for index, size in enumerate(sizes)
    }


def options(stand_in: StandIn, **more: str) -> ReadOptions:
    given = {
        "nameserver": stand_in.name_server,
        "subscribe": "orders",
        "noprogresstimeoutms": "2000",
    }
    return ReadOptions.of_batch(given | more)


def offsets(part: QueueRange, wanted: ReadOptions) -> list[int]:
    return [
        offset
        for batch in read(part, wanted, SCHEMA)
        for offset in batch["queueOffset"].to_pylist()
    ]


def test_planning_covers_what_every_queue_holds() -> None:
    held = queues(5, 0, 3)
    held["orders", 0] = held["orders", 0][2:]
    with cluster(Broker(0, held)) as stand_in:
        assert plan(options(stand_in)) == [QueueRange(QUEUE, 2, 5), QueueRange(QUEUE_2, 0, 3)]
        assert plan(options(stand_in, failondataloss="false", subscribe="orders,others")) == plan(
            options(stand_in)
        )


def test_topics_of_a_pattern_are_those_of_the_name_server() -> None:
    held = queues(5) | {
        ("orders_old", 0): [record(0, 0)],
        ("%DLQ%orders", 0): [record(0, 0)],
        ("stock", 0): [],
    }
    with cluster(Broker(0, held)) as stand_in:

        def topics(pattern: str) -> list[str]:
            wanted = {"nameserver": stand_in.name_server, "subscribepattern": pattern}
            return [each.queue.topic for each in plan(ReadOptions.of_batch(wanted))]

        assert topics("ord.*") == ["orders", "orders_old"]
        assert topics(".*") == ["orders", "orders_old"]
        assert topics(r"%DLQ%.*") == ["%DLQ%orders"]
        assert topics("nothing") == []


def test_queues_assigned_are_the_only_ones_read() -> None:
    with cluster(Broker(0, queues(5, 7, 3))) as stand_in:

        def assigned(queue_ids: str, **more: str) -> list[QueueRange]:
            wanted = {
                "nameserver": stand_in.name_server,
                "assign": f'{{"orders":{{"broker-a":{queue_ids}}}}}',
            }
            return plan(ReadOptions.of_batch(wanted | more))

        assert assigned("[2,0]") == [QueueRange(QUEUE, 0, 5), QueueRange(QUEUE_2, 0, 3)]
        assert assigned("[0,9]", failondataloss="false") == [QueueRange(QUEUE, 0, 5)]
        with pytest.raises(OptionError, match="assign: there is no queue orders@broker-a:9"):
            assigned("[0,9]")


TIMES = (100, 200, 200, 200, 300, 500)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("0", "50", []),
        ("100", "200", [0]),
        ("101", "300", [1, 2, 3]),
        ("200", "201", [1, 2, 3]),
        ("300", "9999", [4, 5]),
        ("500", "501", [5]),
    ],
)
def test_times_bound_a_read_exactly(start: str, end: str, expected: list[int]) -> None:
    held: Queues = {
        ("orders", 0): [record(0, 10 + index, store_ms=ms) for index, ms in enumerate(TIMES)]
    }
    by_queue = '{{"orders":{{"broker-a":{{"0":{}}}}}}}'
    with cluster(Broker(0, held)) as stand_in:
        for wanted in (
            options(stand_in, startingtimestamp=start, endingtimestamp=end),
            options(
                stand_in,
                startingoffsetsbytimestamp=by_queue.format(start),
                endingoffsetsbytimestamp=by_queue.format(end),
            ),
        ):
            found = [offset - 10 for part in plan(wanted) for offset in offsets(part, wanted)]
            assert found == expected


def test_a_start_after_all_messages_is_an_error_or_the_end() -> None:
    held: Queues = {("orders", 0): [record(0, 0, store_ms=100)], ("orders", 1): []}
    with cluster(Broker(0, held)) as stand_in:
        with pytest.raises(
            OptionError,
            match=r"broker-a:. has no message stored at 101 or later; set startingOffsets",
        ):
            plan(options(stand_in, startingtimestamp="101"))
        assert (
            plan(
                options(
                    stand_in, startingtimestamp="101", startingoffsetsbytimestampstrategy="latest"
                )
            )
            == []
        )


def test_an_unknown_topic_is_named() -> None:
    with cluster(Broker(0, queues(5))) as stand_in, pytest.raises(RouteNotFound, match="others"):
        plan(options(stand_in, subscribe="orders,others"))


def test_planning_without_a_name_server_fails_in_time() -> None:
    wanted = ReadOptions.of_batch(
        {"nameserver": "127.0.0.1:1", "subscribe": "orders", "noprogresstimeoutms": "50"}
    )
    with pytest.raises(
        NoProgress, match=r"^127\.0\.0\.1:1: no answer in 0\.05 s, last cannot connect"
    ):
        plan(wanted)


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
        assert offsets(QueueRange(QUEUE, 0, 200), options(stand_in, readfrom=read_from)) == list(
            range(200)
        )
    assert slave.pulls >= 3
    assert (master.pulls == 0) == (read_from == "slave")


@pytest.fixture
def slave_alone() -> Iterator[StandIn]:
    """The master is dead, and its slave has 15 of 20 messages, from offset 5 on."""
    held = queues(20)
    slave = Broker(1, {("orders", 0): held["orders", 0][5:15]})
    master = Broker(0, held)
    with cluster(master, slave) as stand_in:
        stand_in.do(master.die)
        yield stand_in


SLAVE_ALONE = "but only a slave answered, which may lag and has min 5, max 15. Nothing is known to be lost: wait"


def offset_of_queue(at: int) -> str:
    return f'{{"orders":{{"broker-a":{{"0":{at}}}}}}}'


def test_a_read_of_given_offsets_is_planned_on_a_slave_that_has_them(slave_alone: StandIn) -> None:
    for may_lose in ("false", "true"):
        places = {"startingoffsets": offset_of_queue(5), "endingoffsets": offset_of_queue(15)}
        wanted = options(slave_alone, failondataloss=may_lose, **places)
        assert plan(wanted) == [QueueRange(QUEUE, 5, 15)]
        assert offsets(QueueRange(QUEUE, 5, 15), wanted) == list(range(5, 15))


@pytest.mark.parametrize(("start", "end"), [(4, 15), (5, 16)])
def test_offsets_that_a_slave_lacks_are_not_lost_before_its_master_says_so(
    slave_alone: StandIn, start: int, end: int
) -> None:
    places = {"startingoffsets": offset_of_queue(start), "endingoffsets": offset_of_queue(end)}
    for may_lose in ("false", "true"):
        wanted = options(slave_alone, failondataloss=may_lose, noprogresstimeoutms="100", **places)
        with pytest.raises(MasterAway, match=SLAVE_ALONE):
            plan(wanted)
        with pytest.raises(MasterAway, match=SLAVE_ALONE) as error:
            offsets(QueueRange(QUEUE, start, end), wanted)
        assert "failOnDataLoss" not in str(error.value)


@pytest.mark.parametrize(
    "places",
    [
        {"endingoffsets": offset_of_queue(15)},
        {"startingoffsets": offset_of_queue(5)},
        {"startingtimestamp": "1", "endingoffsets": offset_of_queue(15)},
        {"startingoffsets": offset_of_queue(5), "endingtimestamp": str(2**42)},
    ],
)
def test_where_a_queue_begins_and_ends_a_slave_says_to_those_who_ask_it(
    slave_alone: StandIn, places: dict[str, str]
) -> None:
    with pytest.raises(
        MasterAway, match=rf"{SLAVE_ALONE}.*\. readFrom=slave reads what the slave has"
    ):
        plan(options(slave_alone, noprogresstimeoutms="100", **places))
    for more in ({"readfrom": "slave"}, {"readfrom": "slave-only"}, {"failondataloss": "false"}):
        assert plan(options(slave_alone, **places, **more)) == [QueueRange(QUEUE, 5, 15)]


def test_a_master_that_comes_back_while_a_read_is_planned_is_asked() -> None:
    master, slave = Broker(0, queues(20)), Broker(1, queues(15))
    with cluster(master, slave) as stand_in:
        stand_in.listed.remove(master)
        asked = slave.bounds_asked

        def comes_back() -> None:
            stand_in.listed.append(master)

        asked.append(comes_back)
        assert plan(options(stand_in, noprogresstimeoutms="10000")) == [QueueRange(QUEUE, 0, 20)]
        assert not asked, "the slave was asked before"


def test_who_wants_to_know_what_a_slave_lacks_is_told_by_gaps(slave_alone: StandIn) -> None:
    places = {"startingoffsets": offset_of_queue(0), "endingoffsets": offset_of_queue(20)}
    wanted = options(
        slave_alone,
        readfrom="slave-only",
        failondataloss="false",
        noprogresstimeoutms="100",
        **places,
    )
    assert plan(wanted) == [QueueRange(QUEUE, 5, 15)]
    assert offsets(QueueRange(QUEUE, 0, 20), wanted) == list(range(5, 15))


def test_a_master_that_dies_without_a_slave_ends_in_an_error_in_time() -> None:
    master = Broker(0, queues(200))
    master.dies_after_pulls = 3
    with (
        cluster(master) as stand_in,
        pytest.raises(NoProgress, match=r"no answer for offset \d+ in 0\.3 s") as error,
    ):
        offsets(QueueRange(QUEUE, 0, 200), options(stand_in, noprogresstimeoutms="300"))
    assert error.value.__notes__ == ["while reading orders@broker-a:0[0, 200)"]


def test_a_slave_that_never_gets_the_rest_ends_in_an_error() -> None:
    master, slave = Broker(0, queues(200)), Broker(1, queues(150))
    master.dies_after_pulls = 3
    with cluster(master, slave) as stand_in:
        for may_lose in ("false", "true"):
            wanted = options(stand_in, noprogresstimeoutms="300", failondataloss=may_lose)
            with pytest.raises(MasterAway, match=r"wanted offset 150 of .* max 150"):
                offsets(QueueRange(QUEUE, 0, 200), wanted)


def test_a_read_given_up_half_way_leaves_nothing_open() -> None:
    with cluster(Broker(0, queues(200))) as stand_in:
        batches = read(QueueRange(QUEUE, 0, 200), options(stand_in), SCHEMA)
        assert next(batches).num_rows == 200
        batches.close()  # type: ignore[attr-defined]


def test_a_wrong_kind_of_answer_names_the_range() -> None:
    held = queues(10)
    held["orders", 0][3] = record(0, 3, b"no stream", sys_flag=1)
    schema = pa.schema([ARROW_SCHEMA.field("body")])
    damaged = "orders@broker-a:0, queue offset 3: the compressed body is damaged.*; mode=PERMISSIVE reads the rest"
    with cluster(Broker(0, held)) as stand_in, pytest.raises(CorruptBody, match=damaged) as error:
        list(read(QueueRange(QUEUE, 0, 10), options(stand_in), schema))
    assert error.value.__notes__ == ["while reading orders@broker-a:0[0, 10)"]


def test_bodies_that_cannot_be_had_are_that_row_s_affair(caplog: pytest.LogCaptureFixture) -> None:
    """With `_corrupt` in the schema they are rows, without it they are left out; of many the log
    has some.
    """
    bomb = zlib.compress(bytes(5000))
    held = {("orders", 0): [record(0, offset, bomb, sys_flag=offset % 2) for offset in range(40)]}
    columns = [ARROW_SCHEMA.field(name) for name in ("queueOffset", "body", "keys")]
    with cluster(Broker(0, held)) as stand_in:
        wanted = options(stand_in, mode="permissive", maxuncompressedbytes="4999")

        def found(*more: pa.Field) -> list[dict[str, object]]:
            batches = read(QueueRange(QUEUE, 0, 40), wanted, pa.schema([*columns, *more]))
            return [row for batch in batches for row in batch.to_pylist()]

        sound = [
            {"queueOffset": offset, "body": bomb, "keys": f"k{offset}"}
            for offset in range(0, 40, 2)
        ]
        assert found() == sound
        lines = [each.message for each in caplog.records]
        assert len(lines) == TOLD_MAX + 1
        assert lines[0].startswith(
            "damaged data skipped: error=orders@broker-a:0, queue offset 1: the body, stored in"
        )
        assert lines[-1].startswith(
            "damaged data skipped, total: count=20 range=orders@broker-a:0[0, 40)"
        )

        rows = found(pa.field(CORRUPT, pa.string()))
        assert [row for row in rows if row.pop(CORRUPT) is None] == sound
        odd = [row for row in rows if row["body"] is None]
        assert [(row["queueOffset"], row["keys"]) for row in odd] == [
            (at, f"k{at}") for at in range(1, 40, 2)
        ]
