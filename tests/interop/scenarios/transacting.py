"""Transactions: halves that are committed, rolled back, asked after, or given up."""

from __future__ import annotations

import time
from functools import partial

from tests.interop import wire
from tests.interop.ground import CHECKS_MAX
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
END_TRANSACTION = 37
COMMIT = 8


@scenario()
def a_committed_message_is_delivered_once_and_whole(scene: Scene) -> None:
    topic = scene.topic(2)
    member = scene.push(scene.group(), topic)
    producer = scene.producer(check="rollback")
    told = {"tags": "T", "keys": "K", "flag": 5, "user.colour": "red"}
    (sent,) = producer.transact(topic, "commit", **told)
    assert (sent["sendStatus"], sent["localState"]) == ("SEND_OK", "COMMIT_MESSAGE")
    (message,) = member.messages(1)
    assert [message[name] for name in ("topic", "body", "tags", "keys", "flag")] == [
        topic,
        "message-0",
        "T",
        "K",
        5,
    ]
    assert (message["msgId"], message["transactionId"]) == (sent["msgId"], sent["msgId"])
    assert message["properties"]["colour"] == "red"
    assert (message["properties"]["TRAN_MSG"], message["properties"]["REAL_TOPIC"]) == (
        "true",
        topic,
    )
    assert message["sysFlag"] & 0xC == COMMIT
    assert 0 <= message["preparedTransactionOffset"] < message["commitLogOffset"]
    time.sleep(3 * QUIET_SECONDS)
    assert len(member.messages()) == 1
    assert producer.told("check") == []


@scenario()
def a_message_that_is_rolled_back_is_never_seen(scene: Scene) -> None:
    topic = scene.topic()
    producer = scene.producer(check="commit")
    (sent,) = producer.transact(topic, "rollback")
    assert sent["localState"] == "ROLLBACK_MESSAGE"
    time.sleep(4)
    assert scene.max_offset(topic) == 0
    assert producer.told("check") == []


@scenario()
def the_producer_is_asked_about_a_message_it_left_open_and_its_answer_counts(scene: Scene) -> None:
    committed, rolled_back = scene.topic(), scene.topic()
    member = scene.push(scene.group(), committed)
    says_yes, says_no = scene.producer(check="commit"), scene.producer(check="rollback")
    (sent,) = says_yes.transact(committed, "unknown", tags="T")
    says_no.transact(rolled_back, "unknown")
    (check,) = says_yes.told("check", 1)
    assert (check["topic"], check["body"], check["tags"]) == (committed, "message-0", "T")
    assert check["properties"]["UNIQ_KEY"] == sent["msgId"]
    (message,) = member.messages(1)
    assert (message["msgId"], message["body"]) == (sent["msgId"], "message-0")
    assert len(says_no.told("check", 1)) == 1
    time.sleep(3 * QUIET_SECONDS)
    assert scene.max_offset(rolled_back) == 0
    assert len(says_yes.told("check")) == len(says_no.told("check")) == 1


@scenario()
def a_producer_that_does_not_know_is_asked_again(scene: Scene) -> None:
    topic = scene.topic()
    producer = scene.producer(check="unknown,commit")
    producer.transact(topic, "unknown")
    assert [line["times"] for line in producer.told("check", 2)] == [1, 2]
    scene.wait(lambda: scene.max_offset(topic) == 1, "the message")


@scenario(seconds=15)
def a_message_nobody_decides_about_is_given_up_after_so_many_checks(scene: Scene) -> None:
    topic = scene.topic()
    producer = scene.producer(check="unknown")
    (sent,) = producer.transact(topic, "unknown", body=f"open {topic}")
    assert len(producer.told("check", CHECKS_MAX)) == CHECKS_MAX
    reader = scene.pull()

    def given_up() -> list[str]:
        end = scene.max_offset(GIVEN_UP_TOPIC)
        found = reader.take(GIVEN_UP_TOPIC, 0, max(0, end - 30))["messages"] if end else []
        return [line["msgId"] for line in found if line["body"] == f"open {topic}"]

    scene.wait(lambda: given_up() == [sent["msgId"]], "the message among those that were given up")
    time.sleep(3 * QUIET_SECONDS)
    assert len(producer.told("check")) == CHECKS_MAX
    assert scene.max_offset(topic) == 0


@scenario(seconds=12)
def a_message_may_ask_not_to_be_asked_after_for_a_while(scene: Scene) -> None:
    topic = scene.topic()
    producer = scene.producer(check="commit")
    started = time.monotonic()
    producer.transact(topic, "unknown", **{"user.CHECK_IMMUNITY_TIME_IN_SECONDS": 3})
    assert len(producer.told("check", 1)) == 1
    assert time.monotonic() - started > 2.9
    scene.wait(lambda: scene.max_offset(topic) == 1, "the message")


@scenario()
def another_member_of_the_group_is_asked_when_the_producer_is_gone(scene: Scene) -> None:
    topic, group = scene.topic(), f"P-{scene.name()}"
    first = scene.producer(group=group, check="commit")
    first.transact(topic, "unknown")
    first.stop()
    second = scene.producer(group=group, check="commit")
    second.transact(topic, "commit", body="so that it is known to the broker")
    checks = second.told("check", 1)
    assert [line["body"] for line in checks] == ["message-0"]
    scene.wait(lambda: scene.max_offset(topic) == 2, "both messages")


@scenario()
def a_transaction_is_ended_by_its_own_group_at_its_own_place_only(scene: Scene) -> None:
    topic = scene.topic()
    wrongs: tuple[dict[str, object], ...] = (
        {"producerGroup": "other"},
        {"tranStateTableOffset": 10**6},
        {"commitLogOffset": 10**12},
    )
    for number, wrong in enumerate(wrongs, 1):
        right = own_half(scene, topic)
        assert scene.ask(END_TRANSACTION, right | wrong).code == 1, wrong
        assert scene.max_offset(topic) == number - 1
        assert scene.ask(END_TRANSACTION, right).code == 0
        scene.wait(partial(has_end, scene, topic, number), "the message")


def has_end(scene: Scene, topic: str, offset: int) -> bool:
    return scene.max_offset(topic) == offset


def own_half(scene: Scene, topic: str) -> dict[str, object]:
    """Store a half message of a group without producers, which the broker does not give up soon;
    what commits it.
    """
    properties = "TRAN_MSG\x01true\x02PGROUP\x01own\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x0160"
    half = scene.ask(wire.SEND_MESSAGE, wire.send_fields(topic, properties=properties), b"body")
    assert half.code == 0
    sent = half.header["extFields"]
    right = {
        "producerGroup": "own",
        "tranStateTableOffset": sent["queueOffset"],
        "commitOrRollback": COMMIT,
    }
    return right | {"commitLogOffset": int(sent["msgId"][-16:], 16), "msgId": sent["msgId"]}


@scenario()
def halves_are_stored_where_only_the_broker_looks(scene: Scene) -> None:
    topic = scene.topic()
    before = scene.max_offset(HALF_TOPIC)
    producer = scene.producer(check="rollback")
    producer.transact(topic, "rollback", 3)
    assert scene.max_offset(HALF_TOPIC) >= before + 3
    assert scene.max_offset(topic) == 0
