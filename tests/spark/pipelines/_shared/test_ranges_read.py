"""The ranges of a job: which options select them, and what the queues have now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import ConfigError, OptionError, RouteNotFound
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, MasterAway, QueueRange, resolve
from roquet.spark._options.read import ReadOptions
from roquet.spark.pipelines._shared.ranges_read import (
    check_not_fixed,
    chosen,
    from_bounds,
    places_of,
    ranges_now,
    read_options,
    selected,
)
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record

NAMES = st.sampled_from(["orders", "stock", "%DLQ%g"])
RANGES = st.dictionaries(
    st.builds(MessageQueue, NAMES, st.sampled_from(["a", "b"]), st.integers(0, 20)),
    st.tuples(st.integers(0, 1000), st.integers(1, 1000)),
    min_size=1,
    max_size=6,
).map(
    lambda found: [QueueRange(queue, start, start + size) for queue, (start, size) in found.items()]
)


@given(RANGES)
def test_the_options_of_ranges_select_these_and_no_others(ranges: list[QueueRange]) -> None:
    options = ReadOptions.of_batch({"nameServer": "a:1", **places_of(ranges)})
    bounds = {each.queue: Bounds(0, 5000) for each in ranges}

    assert resolve(bounds, options) == sorted(ranges, key=lambda each: each.queue)
    assert options.selection.queues == frozenset(bounds)


@pytest.mark.parametrize(
    ("topics", "pattern", "expected"),
    [
        ((), "", {}),
        (("a", "b"), "", {"subscribe": "a,b"}),
        ((), "o.*", {"subscribePattern": "o.*"}),
        (("a",), "o.*", {"subscribePattern": "o.*"}),
    ],
)
def test_topics_are_chosen_by_name_or_by_pattern(
    topics: tuple[str, ...], pattern: str, expected: dict[str, str]
) -> None:
    assert chosen(topics, pattern) == expected
    assert (
        selected("ns:1", topics, pattern, {"tags": "A"})
        == {
            "nameServer": "ns:1",
            "tags": "A",
        }
        | expected
    )


@pytest.mark.parametrize(
    "name",
    [
        "subscribe",
        "TOPIC",
        "subscribepattern",
        "assign",
        "nameserver",
        "path",
        "brokerName",
        "startingOffsets",
        "STARTINGTIMESTAMP",
        "endingOffsetsByTimestamp",
    ],
)
def test_what_jobs_set_themselves_is_no_option(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: the job sets this option itself, leave it out"):
        check_not_fixed(["tags", name])
    with pytest.raises(OptionError, match="leave it out"):
        selected("ns:1", (), "", {name: "x"})


def test_other_options_are_the_users() -> None:
    check_not_fixed(["tags", "readFrom", "failOnDataLoss"])


def test_keys_are_read_from_the_file_that_is_named(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yml"
    source = selected("ns:1", ("orders",), "", {"accessFile": str(keys)})
    with pytest.raises(ConfigError, match=r"keys\.yml"):
        read_options(source)
    keys.write_text("accessKey: me\nsecretKey: hush\n", encoding="utf-8")

    assert "credentials" in read_options(source).access


# what the queues have now


@pytest.fixture
def couple() -> Iterator[StandIn]:
    """A master with an empty queue and two others, and a slave that lacks some of the messages."""
    held: Queues = {
        ("orders", queue_id): [record(queue_id, offset) for offset in range(5, 5 + size)]
        for queue_id, size in enumerate((3, 0, 4))
    }
    behind = {key: records[:2] for key, records in held.items()}
    with cluster(Broker(0, held), Broker(1, behind)) as running:
        yield running


def source(couple: StandIn, **options: str) -> dict[str, str]:
    given = {"noProgressTimeoutMs": "50", **options}
    return selected(couple.name_server, ("orders",), "", given)


def ranges(*parts: tuple[int, int, int]) -> list[QueueRange]:
    return [QueueRange(MessageQueue("orders", "broker-a", at), *edges) for at, *edges in parts]


def test_ranges_are_what_the_queues_have_without_those_that_are_empty(couple: StandIn) -> None:
    assert ranges_now(source(couple)) == ranges((0, 5, 8), (2, 5, 9))


async def test_ranges_can_be_asked_for_below_a_running_loop(couple: StandIn) -> None:
    assert ranges_now(source(couple)) == ranges((0, 5, 8), (2, 5, 9))


def test_a_slave_alone_does_not_say_where_queues_end_unless_it_may(couple: StandIn) -> None:
    couple.listed.remove(couple.brokers[0])

    with pytest.raises(MasterAway, match="only a slave answered, which may lag"):
        ranges_now(source(couple))
    assert ranges_now(source(couple, readFrom="slave")) == ranges((0, 5, 7), (2, 5, 7))


def test_brokers_are_asked_again_until_the_plan_does_not_miss_a_master(couple: StandIn) -> None:
    master = couple.brokers[0]
    couple.listed.remove(master)
    seen: list[Bounds] = []

    def plan(bounds: dict[MessageQueue, Bounds]) -> int:
        seen.append(bounds[MessageQueue("orders", "broker-a", 0)])
        if not seen[-1].is_certain:
            couple.listed.append(master)
            raise MasterAway("wait")
        return len(bounds)

    options = read_options(source(couple, noProgressTimeoutMs="20000"))
    assert from_bounds(options, plan) == 3
    assert seen == [Bounds(5, 7, is_certain=False), Bounds(5, 8)]


def test_a_topic_that_is_nowhere_is_told(couple: StandIn) -> None:
    with pytest.raises(RouteNotFound, match="nothing"):
        ranges_now(selected(couple.name_server, ("nothing",), "", {}))
