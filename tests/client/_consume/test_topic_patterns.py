"""Which topics a pattern stands for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from roquet.client._consume.topic_patterns import TopicPatterns, split_topics
from roquet.client.selector import Sql
from roquet.errors import ConfigError


def test_a_pattern_matches_whole_names() -> None:
    patterns = TopicPatterns({re.compile("orders-.*"): "*"})
    assert patterns.matching(["orders-1", "old-orders-1", "orders"], []) == {"orders-1": "*"}


def test_of_several_patterns_the_first_gives_the_filter() -> None:
    patterns = TopicPatterns({re.compile("a.*"): "new", re.compile(".*b"): Sql("x > 1")})
    assert patterns.matching(["a", "b", "ab"], []) == {"a": "new", "b": Sql("x > 1"), "ab": "new"}


@pytest.mark.parametrize(
    "topic",
    ["%RETRY%G", "%DLQ%G", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
     "RMQ_SYS_TRACE_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "BenchmarkTest",
     "rmq_sys_wheel_timer", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"],
)  # fmt: skip
def test_topics_that_belong_to_no_application_never_match(topic: str) -> None:
    patterns = TopicPatterns({re.compile(".*"): "*", re.compile(re.escape(topic)): "*"})
    assert patterns.matching([topic, "mine"], ["DefaultCluster", "broker-a"]) == {"mine": "*"}


def test_patterns_stand_alone_or_beside_names() -> None:
    pattern = re.compile("orders-.*")
    for topics, named in ((pattern, {}), ({"a": "x", pattern: "y"}, {"a": "x"})):
        found, patterns = split_topics(topics)  # type: ignore[arg-type]
        assert found == named
        assert patterns
    for plain in ("a", ["a", "b"], {"a": "x"}):
        found, patterns = split_topics(plain)
        assert found == plain
        assert not patterns


@pytest.mark.parametrize(
    "filters", [{re.compile(b"x"): "*"}, {re.compile("x"): 5}, {re.compile("x"): Sql(" ")}]
)
def test_a_pattern_or_filter_that_cannot_be_used_is_refused(filters: Any) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        TopicPatterns(filters)
