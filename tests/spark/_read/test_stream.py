"""A stream's planning against brokers that come, go, lag, and lose messages: nothing lost in
silence, nothing twice.
"""

from __future__ import annotations

import json
import pickle
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from roquet.errors import OptionError, RoquetError, RouteNotFound
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import DataLoss, QueueRange
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.queue import NoProgress
from roquet.spark._read.stream import RocketMQStreamReader
from roquet.spark._read.stream_offset import StreamOffset, UnknownOffset
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record

SCHEMA = StructType().add("queueOffset", "long")
ALL = ReadAllAvailable()


SLAVE_ALONE = {"readfrom": "slave-only", "failondataloss": "false"}


def queues(*sizes: int, start: int = 0, topic: str = "orders") -> Queues:
    return {
        (topic, index): [
            record(index, offset, topic=topic) for offset in range(start, start + size)
        ]
        for index, size in enumerate(sizes)
    }


class Query:
    """What Spark does with a reader, batch by batch; `restarted` is a new reader with the old
    checkpoint.
    """

    def __init__(
        self, stand_in: StandIn, options: Mapping[str, str], start: Mapping[str, Any] | None = None
    ) -> None:
        given = {
            "nameserver": stand_in.name_server,
            "noprogresstimeoutms": "300",
            "startingoffsets": "earliest",
        }
        if "subscribepattern" not in options and "assign" not in options:
            given["subscribe"] = "orders"
        self._stand_in, self._given = stand_in, options
        self.options = ReadOptions.of_stream(given | dict(options))
        self.reader = RocketMQStreamReader(self.options, SCHEMA)
        self.at: dict[str, Any] = (
            dict(start) if start is not None else self._text(self.reader.initialOffset())
        )
        self.read: list[tuple[MessageQueue, int]] = []

    def batch(self, limit: ReadLimit = ALL) -> list[QueueRange]:
        """The ranges of the next batch, which are read; none where Spark would make no batch."""
        end = self._text(self.reader.latestOffset(self.at, limit))
        parts: list[QueueRange] = [part.value for part in self.reader.partitions(self.at, end)]
        for part in self.reader.partitions(self.at, end):
            found = [
                offset
                for rows in self.reader.read(part)
                for offset in rows["queueOffset"].to_pylist()
            ]
            self.read += [(part.value.queue, offset) for offset in found]
        self.at = end
        return parts

    def restarted(self, **more: str) -> Query:
        self.reader.stop()
        query = Query(self._stand_in, {**self._given, **more}, self.at)
        query.read = self.read
        return query

    @staticmethod
    def _text(offset: Mapping[str, Any]) -> dict[str, Any]:
        copied: dict[str, Any] = json.loads(json.dumps(offset))
        return copied


@contextmanager
def querying(stand_in: StandIn, **options: str) -> Iterator[Query]:
    query = Query(stand_in, options)
    try:
        yield query
    finally:
        query.reader.stop()


def queue(queue_id: int, broker: str = "broker-a", topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


def ranges(*parts: tuple[int, int, int]) -> list[QueueRange]:
    return [QueueRange(queue(queue_id), start, end) for queue_id, start, end in parts]


BY_QUEUE = '{"orders":{"broker-a":%s}}'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingoffsets": "earliest"}, {0: 10, 1: 10}),
        ({"startingoffsets": "latest"}, {0: 15, 1: 13}),
        ({"startingoffsets": BY_QUEUE % '{"0":12,"1":-2}'}, {0: 12, 1: 10}),
        ({"startingoffsets": BY_QUEUE % '{"0":12}'}, {0: 12, 1: 13}),
        ({"startingtimestamp": "1700000000456"}, {0: 10, 1: 10}),
        ({"startingoffsetsbytimestamp": BY_QUEUE % '{"0":1}'}, {0: 10, 1: 13}),
        (
            {"startingtimestamp": "1800000000000", "startingoffsetsbytimestampstrategy": "latest"},
            {0: 15, 1: 13},
        ),
        ({"assign": BY_QUEUE % "[1]"}, {1: 10}),
        ({"startingoffsets": BY_QUEUE % '{"0":5}', "failondataloss": "false"}, {0: 10, 1: 13}),
        ({"startingoffsets": BY_QUEUE % '{"7":5}', "failondataloss": "false"}, {0: 15, 1: 13}),
    ],
)
def test_a_new_query_starts_where_it_was_told(
    options: dict[str, str], expected: dict[int, int]
) -> None:
    with (
        cluster(Broker(0, queues(5, 3, start=10))) as stand_in,
        querying(stand_in, **options) as query,
    ):
        offset = StreamOffset.from_json(query.at)
        assert {each.queue_id: at for each, at in offset.positions.items()} == expected


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"startingoffsets": BY_QUEUE % '{"0":5}'}, DataLoss, "wanted offset 5, min 10, max 15"),
        ({"startingoffsets": BY_QUEUE % '{"0":16}'}, DataLoss, "wanted offset 16, min 10, max 15"),
        (
            {"startingoffsets": BY_QUEUE % '{"7":5}'},
            OptionError,
            "there is no queue orders@broker-a:7",
        ),
        (
            {"startingtimestamp": "1800000000000"},
            OptionError,
            "no message stored at 1800000000000 or later",
        ),
        ({"assign": BY_QUEUE % "[7]"}, OptionError, "there is no queue orders@broker-a:7"),
        ({"subscribe": "nothing"}, RouteNotFound, "no broker has topic nothing"),
        ({"nameserver": "127.0.0.1:1"}, NoProgress, "no answer in 0.3 s"),
    ],
)
def test_a_query_that_cannot_start_says_why(
    options: dict[str, str], error: type[RoquetError], words: str
) -> None:
    with cluster(Broker(0, queues(5, 3, start=10))) as stand_in, pytest.raises(error, match=words):
        Query(stand_in, options)


def test_batches_go_on_where_the_one_before_ended_and_keep_to_their_limit() -> None:
    with (
        cluster(Broker(0, queues(8, 2))) as stand_in,
        querying(stand_in, maxoffsetspertrigger="4") as query,
    ):
        limit = query.reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(4)
        assert [sum(part.size for part in query.batch(limit)) for _ in range(4)] == [4, 4, 2, 0]
        assert sorted(query.read) == [(queue(0), at) for at in range(8)] + [
            (queue(1), at) for at in range(2)
        ]


def test_who_asks_for_everything_gets_it_whatever_the_options_say() -> None:
    options = {"maxoffsetspertrigger": "4", "minoffsetspertrigger": "4"}
    with cluster(Broker(0, queues(8, 2))) as stand_in, querying(stand_in, **options) as query:
        assert query.batch(ALL) == ranges((0, 0, 8), (1, 0, 2))


def test_few_messages_wait_for_more() -> None:
    held = queues(3)
    with (
        cluster(Broker(0, held)) as stand_in,
        querying(stand_in, minoffsetspertrigger="5") as query,
    ):
        limit = query.reader.getDefaultReadLimit()
        assert limit == ReadMinRows(5)
        assert query.batch(limit) == query.batch(limit) == []
        stand_in.do(lambda: held.update(queues(6)))
        assert query.batch(limit) == ranges((0, 0, 6))


def test_few_messages_do_not_wait_for_ever() -> None:
    options = {"minoffsetspertrigger": "5", "maxtriggerdelay": "0s"}
    with cluster(Broker(0, queues(3))) as stand_in, querying(stand_in, **options) as query:
        assert query.batch(ReadMinRows(5)) == ranges((0, 0, 3))


def test_nothing_new_is_the_same_text() -> None:
    with cluster(Broker(0, queues(3, 0))) as stand_in, querying(stand_in) as query:
        query.batch()
        before = json.dumps(query.at)
        query.batch()
        assert json.dumps(query.at) == before
        assert (
            query.reader.reportLatestOffset() == StreamOffset({queue(0): 3, queue(1): 0}).to_json()
        )


def test_a_crash_in_the_first_batch_repeats_that_batch_and_no_other() -> None:
    held = queues(3)
    with cluster(Broker(0, held)) as stand_in:
        with querying(stand_in, startingoffsets="latest") as query:
            stand_in.do(lambda: held.update(queues(5)))
            end = query.reader.latestOffset(query.at, ALL)
        stand_in.do(lambda: held.update(queues(9)))
        with querying(stand_in, startingoffsets="latest") as query:
            parts = query.reader.partitions(query.at, end)
            assert [part.value for part in parts] == ranges((0, 3, 5))


def test_a_query_that_saw_nothing_yet_goes_on_where_it_started() -> None:
    held = queues(3)
    with (
        cluster(Broker(0, held)) as stand_in,
        querying(stand_in, startingoffsets="latest") as query,
    ):
        assert query.batch() == []
        again = query.restarted(startingoffsets="latest")
        stand_in.do(lambda: held.update(queues(5)))
        assert again.batch() == ranges((0, 3, 5))
        again.reader.stop()


def test_new_queues_new_brokers_and_new_topics_are_read_from_their_beginning() -> None:
    held = queues(3)
    other = Broker(0, queues(2), "broker-b")
    with cluster(Broker(0, held), other) as stand_in:
        stand_in.listed.remove(other)
        with querying(stand_in, subscribepattern="orders.*", startingoffsets="latest") as query:
            assert query.batch() == []
            stand_in.listed.append(other)
            stand_in.do(lambda: held.update(queues(3, 4) | queues(1, topic="orders2")))
            assert query.batch() == [
                QueueRange(queue(1), 0, 4),
                QueueRange(queue(0, "broker-b"), 0, 2),
                QueueRange(queue(0, topic="orders2"), 0, 1),
            ]
            assert query.batch() == []


def test_a_pattern_may_match_nothing_yet() -> None:
    held = queues(1, topic="others")
    with (
        cluster(Broker(0, held)) as stand_in,
        querying(stand_in, subscribepattern="orders.*") as query,
    ):
        assert query.batch() == []
        stand_in.do(lambda: held.update(queues(2)))
        assert query.batch() == ranges((0, 0, 2))


def test_messages_removed_before_they_were_read_end_the_query_or_are_left_out() -> None:
    held = queues(5)
    with cluster(Broker(0, held)) as stand_in, querying(stand_in) as query:
        query.batch()
        stand_in.do(lambda: held.update(queues(3, start=8)))
        with pytest.raises(DataLoss, match="orders@broker-a:0: wanted offset 5, min 8, max 11"):
            query.batch()
        allowed = query.restarted(failondataloss="false")
        assert allowed.batch() == ranges((0, 8, 11))
        allowed.reader.stop()


def test_messages_removed_after_a_batch_was_planned_end_it() -> None:
    held = queues(5)
    with cluster(Broker(0, held)) as stand_in, querying(stand_in) as query:
        end = query.reader.latestOffset(query.at, ALL)
        stand_in.do(lambda: held.update(queues(2, start=3)))
        (part,) = query.reader.partitions(query.at, end)
        with pytest.raises(DataLoss, match="wanted offsets 0 to 2, min 3, max 5"):
            list(query.reader.read(part))


def test_a_topic_made_anew_ends_the_query_or_is_read_on_from_its_end() -> None:
    held = queues(5)
    with cluster(Broker(0, held)) as stand_in, querying(stand_in) as query:
        query.batch()
        stand_in.do(lambda: held.update(queues(2)))
        with pytest.raises(DataLoss, match="wanted offset 5, min 0, max 2"):
            query.batch()
        allowed = query.restarted(failondataloss="false")
        assert allowed.batch() == []
        stand_in.do(lambda: held.update(queues(4)))
        assert allowed.batch() == ranges((0, 2, 4))
        allowed.reader.stop()


def test_a_topic_deleted_ends_the_query_or_is_left_behind() -> None:
    held = queues(5) | queues(2, topic="others")
    with (
        cluster(Broker(0, held)) as stand_in,
        querying(stand_in, subscribe="orders,others") as query,
    ):
        query.batch()
        stand_in.do(lambda: held.pop(("orders", 0)))
        with pytest.raises(DataLoss, match="wanted offset 5, min 0, max 0"):
            query.batch()
        with pytest.raises(RouteNotFound, match="no broker has topic orders"):
            query.restarted().batch()
        allowed = query.restarted(failondataloss="false")
        stand_in.do(lambda: held.update(queues(3, topic="others")))
        assert allowed.batch() == [QueueRange(queue(0, topic="others"), 2, 3)]
        allowed.reader.stop()


def test_a_broker_that_was_away_is_read_on_where_it_was_left() -> None:
    held = queues(3)
    away = Broker(0, held, "broker-b")
    with (
        cluster(Broker(0, queues(2)), away) as stand_in,
        querying(stand_in, failondataloss="false") as query,
    ):
        query.batch()
        stand_in.listed.remove(away)
        assert query.batch() == []
        stand_in.do(lambda: held.update(queues(5)))
        stand_in.listed.append(away)
        assert query.batch() == [QueueRange(queue(0, "broker-b"), 3, 5)]


def test_a_broker_that_stays_away_ends_a_query_that_may_lose_nothing() -> None:
    away = Broker(0, queues(3), "broker-b")
    with cluster(Broker(0, queues(2)), away) as stand_in, querying(stand_in) as query:
        query.batch()
        stand_in.listed.remove(away)
        with pytest.raises(
            NoProgress, match=r"orders@broker-b:0 is not listed .* failOnDataLoss=false continues"
        ):
            query.batch()


def test_queues_taken_from_a_topic_with_unread_messages_end_the_query_or_stay_where_they_are() -> (
    None
):
    held = queues(2, 2)
    broker = Broker(0, held)
    with cluster(broker) as stand_in, querying(stand_in) as query:
        query.batch()
        broker.read_queues = 1
        assert query.batch() == []
        stand_in.do(lambda: held.update(queues(3, 5)))
        with pytest.raises(
            DataLoss,
            match="orders@broker-a:1: wanted offsets 2 to 4, which the name server does not list",
        ):
            query.batch()
        allowed = query.restarted(failondataloss="false")
        assert allowed.batch() == ranges((0, 2, 3))
        broker.read_queues = 2
        assert allowed.batch() == ranges((1, 2, 5))
        allowed.reader.stop()


@pytest.mark.parametrize(
    "options", [{}, {"failondataloss": "false"}, {"readfrom": "slave-only"}, SLAVE_ALONE]
)
def test_a_slave_that_lags_behind_what_was_read_is_waited_for(options: dict[str, str]) -> None:
    master, slave = Broker(0, queues(10)), Broker(1, queues(10))
    with cluster(master, slave) as stand_in, querying(stand_in, **options) as query:
        assert query.batch() == ranges((0, 0, 10))
        stand_in.do(master.die)
        stand_in.do(lambda: slave.queues.update(queues(7)))
        assert query.batch() == []
        stand_in.do(lambda: slave.queues.update(queues(12)))
        assert query.batch() == ranges((0, 10, 12))


def test_a_master_that_lost_what_was_read_already_is_data_loss() -> None:
    master, slave = Broker(0, queues(10)), Broker(1, queues(7))
    with cluster(master, slave) as stand_in, querying(stand_in) as query:
        query.batch()
        stand_in.do(lambda: master.queues.update(queues(8)))
        with pytest.raises(DataLoss, match="wanted offset 10, min 0, max 8"):
            query.batch()


def test_a_master_that_dies_in_the_middle_of_a_batch_is_survived_on_its_slave() -> None:
    master, slave = Broker(0, queues(300)), Broker(1, queues(300))
    with cluster(master, slave) as stand_in, querying(stand_in) as query:
        master.dies_after_pulls = 3
        assert query.batch() == ranges((0, 0, 300))
        assert query.read == [(queue(0), at) for at in range(300)]
        assert slave.pulls > 0


def test_a_query_for_what_is_there_ends_with_what_was_there() -> None:
    held = queues(6)
    with (
        cluster(Broker(0, held)) as stand_in,
        querying(stand_in, maxoffsetspertrigger="4") as query,
    ):
        query.reader.prepareForTriggerAvailableNow()
        assert query.batch(ReadMaxRows(4)) == ranges((0, 0, 4))
        stand_in.do(lambda: held.update(queues(20, 5)))
        assert query.batch(ReadMaxRows(4)) == ranges((0, 4, 6))
        before = query.at
        assert query.batch(ReadMaxRows(4)) == []
        assert query.at == before


def test_a_batch_takes_about_so_many_bytes_and_never_nothing() -> None:
    """By what bodies are when they are read; with a number of messages, whichever comes first."""
    zeros = zlib.compress(bytes(100_000))
    held: Queues = {("orders", 0): [record(0, offset, zeros, sys_flag=1) for offset in range(30)]}
    with cluster(Broker(0, held)) as stand_in:
        for options, expected in (
            ({"maxbytespertrigger": "1010000"}, [10, 10, 10, 0]),
            ({"maxbytespertrigger": "1010000", "maxoffsetspertrigger": "12"}, [10, 10, 10, 0]),
            ({"maxbytespertrigger": "1010000", "maxoffsetspertrigger": "7"}, [7, 7, 7, 7, 2, 0]),
            ({"maxbytespertrigger": "1"}, [1, 1]),
        ):
            with querying(stand_in, **options) as query:
                limit = query.reader.getDefaultReadLimit()
                assert [sum(part.size for part in query.batch(limit)) for _ in expected] == expected


def test_a_least_number_does_not_keep_a_query_for_what_is_there_from_its_end() -> None:
    with (
        cluster(Broker(0, queues(3))) as stand_in,
        querying(stand_in, minoffsetspertrigger="5") as query,
    ):
        query.reader.prepareForTriggerAvailableNow()
        assert query.batch(ReadMinRows(5)) == ranges((0, 0, 3))


def test_queues_no_longer_selected_are_left_out() -> None:
    with cluster(Broker(0, queues(3, 2))) as stand_in, querying(stand_in) as query:
        query.batch()
        narrower = query.restarted(assign=BY_QUEUE % "[1]")
        assert narrower.batch() == []
        assert StreamOffset.from_json(narrower.at).positions == {queue(1): 2}
        narrower.reader.stop()


def test_a_checkpoint_of_a_later_version_is_refused() -> None:
    with cluster(Broker(0, queues(3))) as stand_in, querying(stand_in) as query:
        query.at = {"version": 2, "queues": {}}
        with pytest.raises(UnknownOffset, match="version 2"):
            query.batch()


def test_batches_are_split_as_in_batch_reads() -> None:
    with (
        cluster(Broker(0, queues(10))) as stand_in,
        querying(stand_in, maxrecordsperpartition="4") as query,
    ):
        assert query.batch() == ranges((0, 0, 3), (0, 3, 6), (0, 6, 10))


def test_progress_that_cannot_be_noted_does_not_end_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(0, queues(3))
    broker.refuses_commits = True
    with cluster(broker) as stand_in, querying(stand_in, consumergroup="watched") as query:
        query.batch()
        query.reader.commit(query.at)
    assert "offset commit failed: group=watched queue=orders@broker-a:0" in caplog.text


@pytest.mark.parametrize(
    ("options", "committed"),
    [({}, []), ({"consumergroup": "watched"}, [("watched", "orders", "0", "3")])],
)
def test_progress_is_committed_for_the_group_that_is_named_and_for_no_other(
    options: dict[str, str], committed: list[tuple[str, ...]]
) -> None:
    broker = Broker(0, queues(3))
    with cluster(broker) as stand_in, querying(stand_in, **options) as query:
        query.batch()
        query.reader.commit(query.at)
    names = ("consumerGroup", "topic", "queueId", "commitOffset")
    assert [tuple(str(each.get(name)) for name in names) for each in broker.commits] == committed


def test_a_reader_travels_to_executors_and_leaves_nothing_behind() -> None:
    with cluster(Broker(0, queues(3))) as stand_in:
        before = set(threading.enumerate())
        with querying(stand_in) as query:
            assert len(set(threading.enumerate()) - before) == 1
            copy = pickle.loads(pickle.dumps(RocketMQStreamReader(query.options, SCHEMA)))
            end = query.reader.latestOffset(query.at, ALL)
            (part,) = query.reader.partitions(query.at, end)
            assert sum(rows.num_rows for rows in copy.read(part)) == 3
        assert set(threading.enumerate()) == before
        query.reader.stop()
