"""Pull requests have the fields of Apache's, and answers are results or errors."""

from __future__ import annotations

import pytest

from roquet.client._consume.pull_request import pull_request, pull_result
from roquet.client._consume.pull_result import PullStatus
from roquet.common.java import LONG_MAX, LONG_MIN
from roquet.errors import MessageError, PeerError, ResponseError
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.headers.pull import COMMIT_OFFSET, SUSPEND, PullAnswer, PullHeader
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.protocol.examples import STORED

QUEUE = MessageQueue("T", "broker-a", 3)
SUBSCRIPTION = Subscription("T", "TagA", 7)
ANSWER = PullAnswer(1, 6, 2, 9).write()


def request(offset: int = 5, commit_offset: int = 4) -> Command:
    flags = COMMIT_OFFSET | SUSPEND
    return pull_request("G", QUEUE, offset, 32, flags, SUBSCRIPTION, 15_000, commit_offset)


def test_a_request_says_what_is_pulled_and_what_is_committed() -> None:
    assert request().code == RequestCode.PULL_MESSAGE
    assert PullHeader.read(request().fields) == PullHeader(
        "G", "T", 3, 5, 32, COMMIT_OFFSET | SUSPEND, 4, 15_000, "TagA", 7, "TAG", "broker-a"
    )


def test_requests_of_a_queue_differ_in_their_offsets_only_and_are_their_own() -> None:
    first, second = request(5, 4), request(6, 5)
    first.fields["maxMsgNums"] = "changed"

    changed = {name for name in second.fields if second.fields[name] != request().fields[name]}
    assert changed == {"queueOffset", "commitOffset"}


@pytest.mark.parametrize("offset", [LONG_MIN, -1, 0, LONG_MAX])
def test_an_offset_may_be_any_number_of_64_bits(offset: int) -> None:
    assert PullHeader.read(request(offset).fields).queue_offset == offset


@pytest.mark.parametrize("offset", [LONG_MIN - 1, LONG_MAX + 1])
def test_another_offset_is_an_error_before_anything_is_sent(offset: int) -> None:
    with pytest.raises(MessageError, match=f"offset is {offset}: allowed are"):
        request(offset)


@pytest.mark.parametrize("status", PullStatus)
def test_an_answer_of_each_status_has_its_offsets(status: PullStatus) -> None:
    result = pull_result(Command(status.value, ANSWER), "b:1", SUBSCRIPTION)

    assert result.status is status
    assert (result.next_offset, result.min_offset, result.max_offset) == (6, 2, 9)
    assert (result.suggested_broker_id, result.of_master) == (1, True)
    assert result.messages == []


def test_messages_are_those_of_an_answer_that_found_some() -> None:
    found = Command(ResponseCode.SUCCESS, ANSWER, STORED)
    other = Command(ResponseCode.PULL_NOT_FOUND, ANSWER, STORED)

    assert (
        pull_result(found, "b:1", SUBSCRIPTION, broker_name="a").messages[0].queue.broker_name
        == "a"
    )
    assert pull_result(other, "b:1", SUBSCRIPTION).messages == []
    assert pull_result(found, "b:1", Subscription("T", "TagB")).messages == []
    assert not pull_result(found, "b:1", SUBSCRIPTION, of_master=False).of_master


def test_a_refusal_is_an_error_of_the_broker() -> None:
    refusal = Command(ResponseCode.NO_PERMISSION, {}, remark="not readable")

    with pytest.raises(ResponseError, match="b:1 answered code 16: not readable"):
        pull_result(refusal, "b:1", SUBSCRIPTION)


@pytest.mark.parametrize("missing", sorted(ANSWER))
def test_an_answer_without_an_offset_breaks_the_protocol(missing: str) -> None:
    fields = {name: text for name, text in ANSWER.items() if name != missing}

    with pytest.raises(PeerError, match=f"answer of b:1: header field {missing} is missing"):
        pull_result(Command(ResponseCode.SUCCESS, fields), "b:1", SUBSCRIPTION)
