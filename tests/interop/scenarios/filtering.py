"""Which messages a subscription selects: tags, and expressions of SQL92."""

from __future__ import annotations

import pytest

from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene
from tests.interop.stage import JavaError, Line

PARSE_FAILED = 23


@scenario()
def a_tag_expression_selects_by_the_tag_itself_not_by_its_hash(scene: Scene) -> None:
    """`Aa` and `BB` have the same hash code, by which the broker selects."""
    topic = scene.topic()
    scene.producer().send(topic, 8, tags="Aa,BB,c,d")
    member = scene.push(scene.group(), topic, tags="Aa || c")
    assert member.bodies(4, QUIET_SECONDS) == ["message-0", "message-2", "message-4", "message-6"]


@scenario()
def a_message_without_a_tag_is_for_those_who_want_all(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, body="bare")
    producer.send(topic, body="tagged", tags="T")
    everything, only_tagged = (
        scene.push(scene.group(), topic),
        scene.push(scene.group(), topic, tags="T"),
    )
    assert everything.bodies(2) == ["bare", "tagged"]
    assert only_tagged.bodies(1, QUIET_SECONDS) == ["tagged"]


@scenario()
def what_a_group_does_not_want_counts_as_consumed(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 6, tags="a,b,b")
    member = scene.push(group, topic, tags="a")
    assert member.bodies(2) == ["message-0", "message-3"]
    scene.wait(lambda: scene.committed(group, topic) == 6, "the offset behind all")


EXPRESSIONS = {
    "a > 5": {"6", "7"},
    "a >= 5 AND b = 'x'": {"6"},
    "a BETWEEN 2 AND 6": {"2", "5", "6"},
    "a NOT BETWEEN 2 AND 6": {"7"},
    "b IN ('x', 'z')": {"2", "6"},
    "b NOT IN ('x')": {"5"},
    "a IS NULL": {"none"},
    "a IS NOT NULL AND b IS NULL": {"7"},
    "a = 2 OR a = 7": {"2", "7"},
    "NOT (a = 2)": {"5", "6", "7"},
    "b <> 'x'": {"5"},
    "a > 4.5": {"5", "6", "7"},
    "TAGS = 'T'": {"5"},
    "(a = 2 or b = 'y') and a is not null": {"2", "5"},
}


@scenario(seconds=20)
def an_sql_expression_selects_by_properties(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, body="2", **{"user.a": "2", "user.b": "x"})
    producer.send(topic, body="5", tags="T", **{"user.a": "5", "user.b": "y"})
    producer.send(topic, body="6", **{"user.a": "6", "user.b": "x"})
    producer.send(topic, body="7", **{"user.a": "7"})
    producer.send(topic, body="none")
    members = {text: scene.push(scene.group(), topic, sql=text) for text in EXPRESSIONS}
    for text, expected in EXPRESSIONS.items():
        assert set(members[text].bodies(len(expected))) == expected, text
    for text, expected in EXPRESSIONS.items():
        assert len(members[text].messages()) == len(expected), text


@scenario()
def an_expression_that_does_not_parse_is_refused_when_the_consumer_starts(scene: Scene) -> None:
    topic = scene.topic()
    for text in ("a >", "a BETWEEN 6 AND 2", "a > 'text'", "(a = 1"):
        with pytest.raises(JavaError) as refused:
            scene.push(scene.group(), topic, sql=text)
        assert refused.value.code == PARSE_FAILED, text


@scenario(ground="strict")
def expressions_are_refused_where_they_are_switched_off(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(retryMaxTimes=16)
    with pytest.raises(JavaError) as refused:
        scene.push(group, topic, sql="a = 1")
    assert refused.value.code == 1


@scenario()
def values_that_are_no_numbers_do_not_match_where_a_number_is_asked_for(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    for value in ("5", "5.0", "five"):
        producer.send(topic, body=value, **{"user.a": value})
    assert scene.push(scene.group(), topic, sql="a = 5").bodies(1, QUIET_SECONDS) == ["5"]
    assert scene.push(scene.group(), topic, sql="a = 5.0").bodies(2, QUIET_SECONDS) == ["5", "5.0"]
    assert scene.push(scene.group(), topic, sql="a <> 6").bodies(1, QUIET_SECONDS) == ["5"]


@scenario()
def a_held_pull_is_woken_by_what_its_expression_wants(scene: Scene) -> None:
    topic = scene.topic()
    member, producer = scene.push(scene.group(), topic, sql="a = 1"), scene.producer()
    member.wait_assigned(topic, {0})
    producer.send(topic, body="other", **{"user.a": "2"})
    producer.send(topic, body="wanted", **{"user.a": "1"})
    assert member.bodies(1, QUIET_SECONDS) == ["wanted"]


@scenario()
def a_pull_brings_its_expression_along(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    for i in range(4):
        producer.send(topic, body=str(i), **{"user.a": str(i)})
    puller, found = scene.pull(), list[Line]()
    puller.take(topic, 0, 0)

    def is_taken() -> bool:
        """A heartbeat's answer tells the client first that this broker knows expressions."""
        try:
            found.append(puller.take(topic, 0, 0, sql="a > 1"))
        except JavaError as error:
            if "does not upgrade to support for filter" not in error.message:
                raise
        return bool(found)

    scene.wait(is_taken, "a client that knows of expressions")
    assert ([line["body"] for line in found[0]["messages"]], found[0]["next"]) == (["2", "3"], 4)
