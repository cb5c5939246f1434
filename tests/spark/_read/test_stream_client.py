"""A stream's client in the driver: what it asks brokers, and that it leaves nothing open."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.bodies import mean_size
from roquet.spark._options.ranges import Bounds, DataLoss
from roquet.spark._options.read import ReadOptions
from roquet.spark._read import cluster_queries
from roquet.spark._read.queue import NoProgress
from roquet.spark._read.stream_client import SAMPLE, StreamClient
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record


def queue(queue_id: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue("orders", broker, queue_id)


def held(*sizes: int, start: int = 0) -> Queues:
    return {
        ("orders", index): [record(index, start + at) for at in range(size)]
        for index, size in enumerate(sizes)
    }


def options(stand_in: StandIn, **given: str) -> ReadOptions:
    defaults = {
        "nameserver": stand_in.name_server,
        "noprogresstimeoutms": "50",
        "startingoffsets": "earliest",
    }
    topics = {} if "assign" in given else {"subscribe": "orders"}
    return ReadOptions.of_stream(defaults | topics | given)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are asked again at once."""
    monkeypatch.setattr(cluster_queries, "PAUSE_SECONDS_MAX", 0.001)


@contextmanager
def asking(stand_in: StandIn, **given: str) -> Iterator[StreamClient]:
    stream = StreamClient(options(stand_in, **given))
    try:
        yield stream
    finally:
        stream.close()


def test_a_thread_runs_from_the_first_query_to_the_end() -> None:
    with cluster(Broker(0, held(3))) as stand_in:
        before = set(threading.enumerate())
        stream = StreamClient(options(stand_in))
        pickle.loads(pickle.dumps(stream)).close()
        assert set(threading.enumerate()) == before, "so far it can be copied to others"

        assert stream.run(stream.starts()) == {queue(0): 0}
        (thread,) = set(threading.enumerate()) - before
        assert (thread.name, thread.daemon) == ("roquet-stream", True)
        stream.run(stream.bounds({}))
        assert set(threading.enumerate()) - before == {thread}, "the next query has the same"

        stream.close()
        stream.close()
        assert set(threading.enumerate()) == before


def test_what_a_query_raises_is_raised_to_who_asked_and_the_next_one_is_answered() -> None:
    with (
        cluster(Broker(0, held(3))) as stand_in,
        asking(stand_in, startingoffsets='{"orders":{"broker-a":{"0":9}}}') as stream,
    ):
        with pytest.raises(DataLoss, match="wanted offset 9, min 0, max 3"):
            stream.run(stream.starts())
        assert stream.run(stream.bounds({queue(0): 1})) == {queue(0): Bounds(0, 3)}


def test_a_queue_that_is_not_listed_and_was_read_to_its_end_has_its_bounds() -> None:
    broker = Broker(0, held(3, 4))
    broker.read_queues = 1
    with cluster(broker) as stand_in, asking(stand_in) as stream:
        assert stream.run(stream.bounds({queue(0): 0, queue(1): 4})) == {
            queue(0): Bounds(0, 3),
            queue(1): Bounds(0, 4),
        }


def test_a_queue_that_is_not_listed_and_has_unread_messages_is_lost_or_keeps_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    broker = Broker(0, held(3, 4))
    broker.read_queues = 1
    with cluster(broker) as stand_in:
        with (
            asking(stand_in) as stream,
            pytest.raises(DataLoss, match="wanted offsets 2 to 3, which the name server does not"),
        ):
            stream.run(stream.bounds({queue(0): 0, queue(1): 2}))
        with asking(stand_in, failondataloss="false") as stream:
            for _ in range(2):
                bounds = stream.run(stream.bounds({queue(0): 0, queue(1): 2}))
                assert bounds == {queue(0): Bounds(0, 3), queue(1): Bounds(2, 2)}
            assert caplog.text.count("queue waits for its master: queue=orders@broker-a:1") == 1
            broker.read_queues = 2
            bounds = stream.run(stream.bounds({queue(0): 0, queue(1): 2}))
            assert bounds[queue(1)] == Bounds(0, 4)
    assert "queue waits no longer: queue=orders@broker-a:1" in caplog.text


def test_a_queue_whose_broker_is_gone_is_named() -> None:
    with (
        cluster(Broker(0, held(3))) as stand_in,
        asking(stand_in) as stream,
        pytest.raises(
            NoProgress,
            match=r"orders@broker-b:0 is not listed by the name server any more, and its broker",
        ),
    ):
        stream.run(stream.bounds({queue(0): 0, queue(0, "broker-b"): 1}))


def test_a_queue_is_not_waited_for_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_queries, "PAUSE_SECONDS_MAX", 3600)
    with (
        cluster(Broker(0, held(3))) as stand_in,
        asking(stand_in) as stream,
        pytest.raises(NoProgress, match="orders@broker-b:0"),
    ):
        stream.run(stream.bounds({queue(0, "broker-b"): 1}))


def test_queues_that_are_not_selected_any_more_are_not_asked_for() -> None:
    with (
        cluster(Broker(0, held(3, 4))) as stand_in,
        asking(stand_in, assign='{"orders":{"broker-a":[1]}}') as stream,
    ):
        assert stream.run(stream.bounds({queue(0): 0})) == {queue(1): Bounds(0, 4)}


def test_the_size_of_messages_is_the_larger_mean_of_the_begin_and_the_middle() -> None:
    small = [record(0, at, b"x" * 10, properties_text="") for at in range(50)]
    large = [record(0, at, b"x" * 5000, properties_text="") for at in range(50, 100)]
    stored = {("orders", 0): small + large, ("orders", 1): []}
    with cluster(Broker(0, stored)) as stand_in, asking(stand_in) as stream:

        def size(first: int, count: int) -> dict[MessageQueue, int]:
            counts = {queue(0): count, queue(1): 0}
            return stream.run(
                stream.message_sizes({queue(0): first, queue(1): 0}, counts, otherwise=7)
            )

        assert size(0, 100) == {queue(0): mean_size(large[:SAMPLE], 1 << 20)}
        assert size(0, 20) == {queue(0): mean_size(small[:SAMPLE], 1 << 20)}
        assert size(49, 1)[queue(0)] == mean_size([*small[49:], *large[: SAMPLE - 1]], 1 << 20)
        assert size(0, 0) == {}


def test_a_size_that_nobody_says_is_the_other_one() -> None:
    with cluster(Broker(0, held(3))) as stand_in, asking(stand_in) as stream:
        away = queue(0, "broker-b")
        sizes = stream.message_sizes({away: 0}, {away: 5}, otherwise=7)
        assert stream.run(sizes) == {away: 7}


def test_a_commit_has_the_offsets_that_changed_or_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(0, held(3, 3))

    def committed() -> list[tuple[str, str]]:
        found = [(each["queueId"], each["commitOffset"]) for each in broker.commits]
        broker.commits.clear()
        return [(str(queue_id), str(offset)) for queue_id, offset in sorted(found)]

    with cluster(broker) as stand_in, asking(stand_in) as stream:
        for positions, expected in (
            ({0: 1, 1: 0}, [("0", "1"), ("1", "0")]),
            ({0: 1, 1: 2}, [("1", "2")]),
            ({0: 1, 1: 2}, []),
            ({0: 0, 1: 2}, [("0", "0")]),
        ):
            stream.run(
                stream.commit("g", {queue(queue_id): at for queue_id, at in positions.items()})
            )
            assert committed() == expected
        broker.refuses_commits = True
        stream.run(stream.commit("g", {queue(0): 3}))
        assert "offset commit failed: group=g queue=orders@broker-a:0 error=" in caplog.text
        assert committed() == [("0", "3")]
        broker.refuses_commits = False
        stream.run(stream.commit("g", {queue(0): 3}))
        assert committed() == [("0", "3")]
