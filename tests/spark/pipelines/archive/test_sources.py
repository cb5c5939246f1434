"""What an archive takes from brokers, by whom there is to ask: only a master says where a queue
ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import DataLoss, MasterAway, QueueRange
from roquet.spark.pipelines.archive.plan import ends
from roquet.spark.pipelines.archive.sources import Topics
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record

QUEUE, OTHER = (MessageQueue("orders", "broker-a", number) for number in range(2))
MODES = pytest.mark.parametrize("may_lose", ["true", "false"])


def held(first: int, end: int) -> Queues:
    return {("orders", 0): [record(0, offset) for offset in range(first, end)]}


class Couple:
    """A master with 2,000 messages, and a slave that has 1,000 of them."""

    def __init__(self) -> None:
        self.master, self.slave = Broker(0, held(0, 2000)), Broker(1, held(0, 1000))

    def topics(self, stand_in: StandIn, **options: str) -> Topics:
        return Topics(
            stand_in.name_server, ("orders",), options={"noProgressTimeoutMs": "100", **options}
        )


@pytest.fixture
def couple() -> Couple:
    return Couple()


@pytest.fixture
def alone(couple: Couple) -> Iterator[StandIn]:
    """The slave, whose master is dead."""
    with cluster(couple.master, couple.slave) as stand_in:
        stand_in.do(couple.master.die)
        yield stand_in


def test_an_archive_is_not_taken_back_to_where_a_slave_is(
    couple: Couple, alone: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """The archive has all 2,000; its progress stays, also when the slave gets more, and it says so
    once.
    """
    topics = couple.topics(alone, failOnDataLoss="false")
    for end in (1000, 1100, 1900):
        alone.do(partial(couple.slave.queues.update, held(0, end)))
        assert topics.new_ranges({QUEUE: 2000}) == [QueueRange(QUEUE, 2000, 2000)]
    waits = [each for each in caplog.records if "queue waits for its master" in each.getMessage()]
    assert len(waits) == 1
    assert (
        "wanted offset 2000, but only a slave answered, which may lag and has min 0, max 1000"
        in waits[0].message
    )

    alone.do(lambda: couple.slave.queues.update(held(0, 2050)))
    with caplog.at_level(logging.INFO):
        assert topics.new_ranges({QUEUE: 2000}) == [QueueRange(QUEUE, 2000, 2050)], (
            "it has caught up"
        )
    assert "queue waits no longer: queue=orders@broker-a:0" in caplog.text


def test_an_archive_that_may_lose_nothing_ends_and_does_not_advise_to_lose_something(
    couple: Couple, alone: StandIn
) -> None:
    with pytest.raises(
        MasterAway, match="Nothing is known to be lost: wait for the master"
    ) as error:
        couple.topics(alone).new_ranges({QUEUE: 2000})
    assert "failOnDataLoss" not in str(error.value)


@MODES
def test_what_a_slave_has_beyond_the_archive_is_taken(
    couple: Couple, alone: StandIn, may_lose: str
) -> None:
    new = couple.topics(alone, failOnDataLoss=may_lose).new_ranges({QUEUE: 300})
    assert new == [QueueRange(QUEUE, 300, 1000)]
    assert couple.topics(alone).new_ranges({}) == [QueueRange(QUEUE, 0, 1000)], "a new queue, whole"


def test_a_slave_that_came_late_does_not_make_older_messages_lost(
    couple: Couple, alone: StandIn
) -> None:
    alone.do(lambda: couple.slave.queues.update(held(500, 1000)))
    topics = couple.topics(alone, failOnDataLoss="false")
    assert topics.new_ranges({QUEUE: 300}) == [QueueRange(QUEUE, 300, 300)]
    assert topics.new_ranges({}) == [], "nobody knows where a new queue begins"
    for progress in ({QUEUE: 300}, {}):
        with pytest.raises(MasterAway, match="has min 500, max 1000"):
            couple.topics(alone).new_ranges(progress)


def test_a_master_that_lost_messages_is_believed(couple: Couple) -> None:
    """As in a stream: what it holds is archived already, what comes next is not."""
    couple.master.queues = held(0, 900)
    with cluster(couple.master, couple.slave) as stand_in:
        with pytest.raises(DataLoss, match="wanted offset 2000, min 0, max 900"):
            couple.topics(stand_in).new_ranges({QUEUE: 2000})
        topics = couple.topics(stand_in, failOnDataLoss="false")
        assert topics.new_ranges({QUEUE: 2000}) == [QueueRange(QUEUE, 900, 900)]
        stand_in.do(lambda: couple.master.queues.update(held(0, 950)))
        assert topics.new_ranges({QUEUE: 900}) == [QueueRange(QUEUE, 900, 950)]


def test_a_queue_that_waits_does_not_keep_others(couple: Couple, alone: StandIn) -> None:
    alone.do(
        lambda: couple.slave.queues.update(
            {("orders", 1): [record(1, offset) for offset in range(7)]}
        )
    )
    new = couple.topics(alone, failOnDataLoss="false").new_ranges({QUEUE: 2000, OTHER: 5})
    assert ends(new) == {QUEUE: 2000, OTHER: 7}


@pytest.mark.parametrize(
    "option", [{"mode": "PERMISSIVE"}, {"tags": "A"}, {"failOnDataLoss": "false"}]
)
def test_a_run_that_may_leave_messages_out_does_not_count_them(option: dict[str, str]) -> None:
    assert Topics("ns:1", ("orders",)).is_exact
    assert not Topics("ns:1", ("orders",), options=option).is_exact


def test_a_slave_alone_is_not_asked_to_say_what_is_gone() -> None:
    with pytest.raises(
        OptionError, match="would never archive messages that the slave does not have yet"
    ):
        Topics("ns:1", ("orders",), options={"readFrom": "slave-only", "failOnDataLoss": "false"})
