"""Requests and replies, and the trace of messages."""

from __future__ import annotations

import pytest

from tests.interop.apache import Version
from tests.interop.ground import CLUSTER
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import Lines, Scene
from tests.interop.stage import JavaError

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
REQUEST_TIMEOUT = 10006


@scenario()
def a_request_gets_the_reply_to_it(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    answers = scene.push(group, topic, replyGroup=f"P-{scene.name()}")
    producer = scene.producer()
    for word in ("first", "second"):
        reply = producer.request(topic, word)
        assert reply["body"] == word.upper()
    assert len(answers.messages()) == 2
    request = answers.messages()[0]["properties"]
    assert request["CLUSTER"] == CLUSTER
    assert {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"} <= set(request)
    sent = answers.told("reply", 2)
    assert [line["sendStatus"] for line in sent] == ["SEND_OK"] * 2


@scenario()
def requesters_get_the_replies_to_their_own_requests(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.push(scene.group(), topic, replyGroup=f"P-{scene.name()}")
    for producer, word in ((scene.producer(), "one"), (scene.producer(), "two")):
        assert producer.request(topic, word)["body"] == word.upper()


@scenario()
def a_request_that_nobody_answers_ends_after_its_time(scene: Scene) -> None:
    topic = scene.topic()
    with pytest.raises(JavaError) as late:
        scene.producer().request(topic, "hello", timeout=1500)
    assert late.value.code == REQUEST_TIMEOUT


@scenario()
def a_reply_whose_requester_is_gone_is_told_so(scene: Scene) -> None:
    topic = scene.topic()
    requester = scene.producer()
    with pytest.raises(JavaError):
        requester.request(topic, "hello", timeout=1000)
    requester.stop()
    answers = scene.push(scene.group(), topic, replyGroup=f"P-{scene.name()}")
    (outcome,) = answers.told("reply", 1)
    assert outcome["code"] == 1


def traces(scene: Scene, message_id: str) -> Lines:
    found: Lines = scene.pull().ask("query", TRACE_TOPIC, key=message_id)
    return found


@scenario(seconds=8)
def sending_and_consuming_leave_a_trace(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    (sent,) = scene.producer(trace=True).send(topic, keys="K", tags="T")
    member = scene.push(group, topic, trace=True)
    member.messages(1)

    def kinds() -> set[str]:
        try:
            lines = traces(scene, sent["msgId"])
        except JavaError:
            return set()
        return {
            record.split("\x01")[0]
            for line in lines
            for record in line["body"].split("\x02")
            if record
        }

    consumed = (
        {"SubBefore", "SubAfter"} if scene.version is Version.V4 else set()
    )  # 5.x's are not found by the id.
    scene.wait(lambda: kinds() >= {"Pub", *consumed}, "all records")
    records = [
        record.split("\x01")
        for line in traces(scene, sent["msgId"])
        for record in line["body"].split("\x02")
    ]
    (published,) = [record for record in records if record[0] == "Pub" and sent["msgId"] in record]
    assert published[4:8] == [topic, sent["msgId"], "T", "K"]
    assert published[8] == scene.broker
    assert published[12] == sent["offsetMsgId"]
