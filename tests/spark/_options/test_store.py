"""The options of `format("rocketmq-store")`, from text to values."""

from __future__ import annotations

import pytest

from roquet.errors import OptionError
from roquet.spark._options.store import BYTES_PER_PARTITION, StoreOptions
from roquet.spark._options.values import Mode


def options(**given: str) -> StoreOptions:
    return StoreOptions.of(
        {name.lower(): value for name, value in ({"path": "/data/store"} | given).items()}
    )


def test_a_path_is_enough() -> None:
    found = options()

    assert found.paths == ("/data/store",)
    assert (found.commit_log, found.broker_names, found.tags) == ((), (), None)
    assert (found.since_ms, found.until_ms) == (None, None)
    assert (found.bytes_per_partition, found.mode, found.check_crc) == (
        BYTES_PER_PARTITION,
        Mode.FAILFAST,
        True,
    )
    assert found.include_properties


def test_without_a_selection_all_topics_of_applications_are_read() -> None:
    topics = ["orders", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%DLQ%G"]

    assert options().selection.topics_among(topics, ()) == ("orders",)


def test_topics_can_be_called_by_either_name() -> None:
    assert (
        options(subscribe="a, b").selection.topics
        == options(topic="a,b").selection.topics
        == ("a", "b")
    )


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"path": "/a,/b , /c"}, ("/a", "/b", "/c")),
        ({"path": "file:///data/a"}, ("/data/a",)),
        ({"path": "file:/data/a"}, ("/data/a",)),
        ({"path": "/a/*/store"}, ("/a/*/store",)),
        ({"path": "relative/x:y"}, ("relative/x:y",)),
    ],
)
def test_paths_are_separated_by_commas_and_may_be_urls_of_files(
    given: dict[str, str], paths: tuple[str, ...]
) -> None:
    assert options(**given).paths == paths


def test_several_paths_come_from_spark_as_a_list_in_which_commas_are_letters() -> None:
    assert StoreOptions.of({"paths": '["/a", "/b,c"]'}).paths == ("/a", "/b,c")


def test_times_bound_every_queue() -> None:
    found = options(startingTimestamp="1000", endingTimestamp="2000")

    assert (found.since_ms, found.until_ms) == (1000, 2000)


def test_names_and_folders_are_separated_by_commas() -> None:
    found = options(brokerName="broker-a, broker-b", commitLog="/x/1,/x/2")

    assert found.broker_names == ("broker-a", "broker-b")
    assert found.commit_log == ("/x/1", "/x/2")


def test_two_stores_may_be_of_brokers_of_one_name() -> None:
    assert options(brokerName="a,a").broker_names == ("a", "a")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": " , "}, "path is missing"),
        ({"paths": "[1]"}, "path and paths are the same option"),
        ({"path": "hdfs://host/store"}, "'hdfs://host/store' is no local directory"),
        ({"comitLog": "/x"}, "did you mean commitLog?"),
        ({"nameServer": "localhost:9876"}, "unknown option nameserver"),
        ({"mode": "dropmalformed"}, "'dropmalformed' is none of failfast, permissive"),
        ({"checkCrc": "yes"}, "'yes' is none of true, false"),
        ({"bytesPerPartition": "0"}, "'0' is no whole number above 0"),
        ({"bytesPerPartition": "64m"}, "'64m' is no whole number above 0"),
        ({"subscribe": "a", "subscribePattern": ".*"}, "give exactly one of"),
        ({"startingOffsets": "latest"}, "'latest' is not possible for a batch read"),
        ({"endingOffsets": "earliest"}, "'earliest' is not possible for a batch read"),
        ({"startingTimestamp": "noon"}, "'noon' is no time"),
        (
            {"subscribe": "a", "startingOffsets": '{"b":{"x":{"0":1}}}'},
            "topic 'b' is not subscribed: a",
        ),
        ({"tags": "||"}, "give tags separated by ||"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as error:
        options(**given)

    assert words in str(error.value)


@pytest.mark.parametrize("text", ["[1]", '"/a"', "/a", "{"])
def test_a_list_of_paths_must_be_one(text: str) -> None:
    with pytest.raises(OptionError, match="is no JSON list of directories"):
        StoreOptions.of({"paths": text})
