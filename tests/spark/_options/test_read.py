"""Options: what is right arrives typed, what is wrong says what would be right."""

from __future__ import annotations

import pytest

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.selection import Selection
from roquet.spark._options.start_end import AtTime, Offsets

NEEDED = {"nameserver": "localhost:9876", "subscribe": "orders"}
NAMED = {"nameserver": "localhost:9876"}
ASSIGNED = {"assign": '{"orders":{"broker-a":[0]}}'}
QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def test_a_batch_reads_everything_unless_told_otherwise() -> None:
    options = ReadOptions.of_batch(NEEDED)
    assert options == ReadOptions(
        "localhost:9876", Selection(("orders",)), Offsets("earliest", {}), Offsets("latest", {})
    )


def test_lists_are_split_and_stripped() -> None:
    options = ReadOptions.of_batch(
        {"nameServer": "a:1, b:2;[::1]:3", "topic": "orders, %RETRY%g,orders"}
    )
    assert options.name_server == "a:1;b:2;[::1]:3"
    assert options.selection.topics == ("orders", "%RETRY%g")


def test_every_option_is_read() -> None:
    options = ReadOptions.of_batch(
        NEEDED
        | {
            "tags": "A || B",
            "failondataloss": "FALSE",
            "readfrom": "Slave",
            "pulltimeoutms": "100",
            "pullbatchsize": "7",
            "noprogresstimeoutms": "200",
            "minpartitions": "3",
            "maxrecordsperpartition": "50",
            "includeproperties": "false",
        }
    )
    assert options == ReadOptions(
        "localhost:9876",
        Selection(("orders",)),
        Offsets("earliest", {}),
        Offsets("latest", {}),
        tags=frozenset({"A", "B"}),
        fail_on_data_loss=False,
        read_from="slave",
        pull_timeout_ms=100,
        pull_batch_size=7,
        no_progress_timeout_ms=200,
        min_partitions=3,
        max_records_per_partition=50,
        include_properties=False,
    )


def test_a_read_has_its_queues_and_where_it_starts_and_ends() -> None:
    places = {"startingoffsets": '{"orders":{"broker-a":{"0":23}}}', "endingtimestamp": "9"}

    options = ReadOptions.of_batch(NAMED | ASSIGNED | places)

    assert options.selection == Selection(("orders",), queues=frozenset({QUEUE_0}))
    assert options.starting_offsets == Offsets("earliest", {QUEUE_0: 23})
    assert options.ending_offsets == Offsets(AtTime(9), {})


def test_a_start_after_all_messages_is_an_error_unless_its_strategy_says_otherwise() -> None:
    late = NEEDED | {"startingtimestamp": "9"}
    for of in (ReadOptions.of_batch, ReadOptions.of_stream):
        assert of(late).starting_offsets.default == AtTime(9, or_latest=False)
        to_its_end = of(late | {"startingoffsetsbytimestampstrategy": "latest"})
        assert to_its_end.starting_offsets.default == AtTime(9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "orders"}, "nameServer is missing"),
        (NEEDED | {"nameserver": "localhost"}, "'localhost' is no host:port"),
        (NEEDED | {"nameserver": "localhost:99999"}, "no host:port"),
        (NEEDED | {"topic": "orders"}, "same option"),
        (NEEDED | {"startingofset": "earliest"}, "did you mean startingOffsets"),
        (NEEDED | {"nameserverr": "x:1"}, "did you mean nameServer"),
        (
            NEEDED | {"zzzzzz": "1"},
            "the options are accessFile, accessKey, assign, consumerGroup, ",
        ),
        (
            NEEDED | {"startingoffsets": "latest"},
            "startingOffsets: 'latest' is not possible for a batch read",
        ),
        (
            NEEDED | {"endingoffsets": "earliest"},
            "endingOffsets: 'earliest' is not possible for a batch read",
        ),
        (NEEDED | {"failondataloss": "no"}, "'no' is none of true, false"),
        (NEEDED | {"pullbatchsize": "0"}, "pullBatchSize: '0' is no whole number above 0"),
        (NEEDED | {"minpartitions": "-1"}, "minPartitions: '-1'"),
        (NEEDED | {"readfrom": "replica"}, "none of master, slave, slave-only, any"),
        (NEEDED | {"tags": "||"}, "tags separated by"),
        (NEEDED | {"subexpression": "||"}, "tags: give tags separated by"),
        (NEEDED | {"tags": "A", "subexpression": "A"}, "same option"),
        (NEEDED | {"groupidprefix": "a b"}, "groupIdPrefix: group name 'a b'"),
        (NEEDED | {"consumergroup": ""}, "consumerGroup: the group's name is blank"),
        (NEEDED | {"maxoffsetspertrigger": "5"}, "maxOffsetsPerTrigger: only streams have it"),
        (
            NEEDED | {"accesskey": "5"},
            "secretKey is missing: requests are signed with accessKey and secretKey",
        ),
        (NEEDED | {"usetls": "5"}, "useTLS: .5. is neither true nor false"),
    ],
)
def test_a_wrong_option_is_explained(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ReadOptions.of_batch(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"endingoffsets": "latest"},
            "endingOffsets: only batch reads have it, a stream has no end",
        ),
        ({"endingtimestamp": "5"}, "endingTimestamp: only batch reads"),
        ({"endingoffsetsbytimestamp": "{}"}, "endingOffsetsByTimestamp: only batch reads"),
        (
            {"minoffsetspertrigger": "6", "maxoffsetspertrigger": "5"},
            "minOffsetsPerTrigger, 6, is above max",
        ),
        ({"maxtriggerdelay": "5s"}, "maxTriggerDelay bounds the wait for minOffsetsPerTrigger"),
        (
            {"minoffsetspertrigger": "6", "maxtriggerdelay": "soon"},
            "'soon' is no duration such as 15m",
        ),
        (
            {"minoffsetspertrigger": "6", "maxtriggerdelay": "5 weeks"},
            "'5 weeks' is no duration such as 15m",
        ),
        (
            {"minoffsetspertrigger": "6", "maxtriggerdelay": "9" * 5000 + "s"},
            "99s' is no duration such as 15m",
        ),
    ],
)
def test_a_wrong_option_of_a_stream_is_explained(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ReadOptions.of_stream(NEEDED | given)


def test_a_stream_starts_at_the_latest_unless_told_otherwise() -> None:
    assert ReadOptions.of_stream(NEEDED).starting_offsets == Offsets("latest", {})
    assert ReadOptions.of_stream(
        NEEDED | {"startingoffsets": "Earliest"}
    ).starting_offsets == Offsets("earliest", {})
    named = ReadOptions.of_stream(
        NEEDED | {"startingoffsets": '{"orders":{"broker-a":{"0":-1}}}'}
    ).starting_offsets
    assert [named.of(queue) for queue in (QUEUE_0, QUEUE_1)] == ["latest", "latest"]


def test_what_a_trigger_takes_is_bounded() -> None:
    bounded = {"maxoffsetspertrigger": "50", "minoffsetspertrigger": "5", "maxtriggerdelay": "2m"}
    options = ReadOptions.of_stream(NEEDED | bounded)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (50, 5)
    assert options.max_trigger_delay_ms == 120_000
    assert ReadOptions.of_stream(NEEDED).max_trigger_delay_ms == 900_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500", 500),
        ("500ms", 500),
        ("90 s", 90_000),
        ("15M", 900_000),
        ("2min", 120_000),
        ("1d", 86_400_000),
    ],
)
def test_a_delay_is_read_as_spark_reads_times(text: str, ms: int) -> None:
    options = ReadOptions.of_stream(NEEDED | {"minoffsetspertrigger": "5", "maxtriggerdelay": text})
    assert options.max_trigger_delay_ms == ms


def test_names_of_rocketmq_spark_are_known() -> None:
    options = ReadOptions.of_stream(
        NAMED | {"topic": "orders", "subexpression": "A||B", "pulltimeout": "7"}
    )
    assert options.selection.topics == ("orders",)
    assert (options.tags, options.pull_timeout_ms) == (frozenset({"A", "B"}), 7)


def test_brokers_see_one_group_for_all_reads_unless_one_is_given() -> None:
    assert ReadOptions.of_batch(NEEDED).group == "spark-rocketmq-source"
    assert ReadOptions.of_batch(NEEDED | {"groupidprefix": "reports"}).group == "reports"
    assert (
        ReadOptions.of_batch(NEEDED | {"groupidprefix": "reports", "consumergroup": "g"}).group
        == "g"
    )
