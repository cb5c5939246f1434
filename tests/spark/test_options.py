"""Options: what is right arrives typed, what is wrong says what would be right."""

from __future__ import annotations

import pytest

from roquet.protocol.message import MessageQueue
from roquet.spark.option_values import OptionError
from roquet.spark.options import Offsets, ReadOptions

NEEDED = {"nameserver": "localhost:9876", "subscribe": "orders"}
QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def test_a_batch_reads_everything_unless_told_otherwise() -> None:
    options = ReadOptions.of_batch(NEEDED)
    assert options == ReadOptions("localhost:9876", ("orders",), Offsets("earliest", {}), Offsets("latest", {}))


def test_lists_are_split_and_stripped() -> None:
    options = ReadOptions.of_batch({"nameServer": "a:1, b:2;[::1]:3", "topic": "orders, %RETRY%g,orders"})
    assert options.name_server == "a:1;b:2;[::1]:3"
    assert options.topics == ("orders", "%RETRY%g")


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
        ("orders",),
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


def test_offsets_are_taken_queue_by_queue() -> None:
    options = ReadOptions.of_batch(
        NEEDED
        | {
            "startingoffsets": '{"orders":{"broker-a":{"0":23,"1":-2}}}',
            "endingoffsets": '{"orders":{"broker-a":{"0":42,"1":-1}}}',
        }
    )
    assert [options.starting_offsets.of(queue) for queue in (QUEUE_0, QUEUE_1)] == [23, "earliest"]
    assert [options.ending_offsets.of(queue) for queue in (QUEUE_0, QUEUE_1)] == [42, "latest"]
    assert options.starting_offsets.of(MessageQueue("orders", "broker-b", 0)) == "earliest"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "orders"}, "nameServer is missing"),
        (NEEDED | {"nameserver": "localhost"}, "'localhost' is no host:port"),
        (NEEDED | {"nameserver": "localhost:99999"}, "no host:port"),
        ({"nameserver": "localhost:9876"}, "subscribe is missing"),
        (NEEDED | {"topic": "orders"}, "same option"),
        (NEEDED | {"subscribe": "no blanks"}, "topic name 'no blanks'"),
        (NEEDED | {"startingofset": "earliest"}, "did you mean startingOffsets"),
        (NEEDED | {"nameserverr": "x:1"}, "did you mean nameServer"),
        (NEEDED | {"zzzzzz": "1"}, "there are endingOffsets, failOnDataLoss"),
        (NEEDED | {"startingoffsets": "latest"}, "startingOffsets: a batch read cannot have 'latest'"),
        (NEEDED | {"endingoffsets": "earliest"}, "endingOffsets: a batch read cannot have 'earliest'"),
        (NEEDED | {"startingoffsets": "soon"}, "'soon' is none of"),
        (NEEDED | {"startingoffsets": "[1]"}, r"\[1\] stands where a JSON object must be"),
        (NEEDED | {"startingoffsets": '{"orders":{"broker-a":3}}'}, "3 stands where a JSON object must be"),
        (NEEDED | {"startingoffsets": '{"order":{"broker-a":{"0":3}}}'}, "topic 'order' is not one of those"),
        (NEEDED | {"startingoffsets": '{"orders":{"broker-a":{"x":3}}}'}, "queue 'x' of orders@broker-a"),
        (NEEDED | {"startingoffsets": '{"orders":{"broker-a":{"0":-3}}}'}, "offset -3 of orders@broker-a:0"),
        (NEEDED | {"startingoffsets": '{"orders":{"broker-a":{"0":true}}}'}, "offset true of"),
        (NEEDED | {"startingoffsets": '{"orders":{"broker-a":{"0":-1}}}'}, "-1 .latest. makes no sense"),
        (NEEDED | {"endingoffsets": '{"orders":{"broker-a":{"0":-2}}}'}, "-2 .earliest. makes no sense"),
        (NEEDED | {"failondataloss": "no"}, "'no' is none of true, false"),
        (NEEDED | {"pullbatchsize": "0"}, "pullBatchSize: '0' is no whole number above 0"),
        (NEEDED | {"minpartitions": "-1"}, "minPartitions: '-1'"),
        (NEEDED | {"readfrom": "replica"}, "none of master, slave, any"),
        (NEEDED | {"tags": "||"}, "tags separated by"),
    ],
)
def test_a_wrong_option_is_explained(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ReadOptions.of_batch(given)
