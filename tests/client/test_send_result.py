"""What a broker's answer to a send means."""

from __future__ import annotations

import pytest

from roquet.client.send_result import SendStatus, send_results
from roquet.errors import PeerError, ResponseError
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command

FIELDS = {
    "msgId": "AA,BB",
    "queueId": "2",
    "queueOffset": "70",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
}
QUEUE = MessageQueue("T", "b", 2)


def test_each_message_of_a_batch_has_its_ids_and_its_offset() -> None:
    one, two = send_results(Command(0, FIELDS), "h:1", QUEUE, ("K1", "K2"))
    assert (one.message_id, one.offset_message_id, one.queue_offset) == ("K1", "AA", 70)
    assert (two.message_id, two.offset_message_id, two.queue_offset) == ("K2", "BB", 71)
    assert one.queue == two.queue == QUEUE


def test_the_queue_is_the_one_that_the_broker_names() -> None:
    (result,) = send_results(
        Command(0, FIELDS | {"msgId": "AA", "queueId": "3"}), "h:1", QUEUE, ("K",)
    )
    assert result.queue == MessageQueue("T", "b", 3)


def test_its_text_is_short_and_has_what_one_looks_for() -> None:
    fields = FIELDS | {"msgId": "AA"}
    (result,) = send_results(Command(0, fields), "h:1", QUEUE, ("K1",))
    assert repr(result) == (
        "SendResult(status=SendStatus.SEND_OK, queue='T@b:2', queue_offset=70, "
        "message_id='K1', offset_message_id='AA')"
    )
    late = Command(ResponseCode.FLUSH_DISK_TIMEOUT, fields, remark="slow drive")
    (result,) = send_results(late, "h:1", QUEUE, ("K1",))
    assert repr(result).endswith("offset_message_id='AA', remark='slow drive')")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_a_message_that_is_stored_but_less_safely_is_no_error(
    code: ResponseCode, status: SendStatus
) -> None:
    (result,) = send_results(
        Command(code, FIELDS | {"msgId": "AA"}, remark="because"), "h:1", QUEUE, ("K",)
    )
    assert (result.status, result.remark) == (status, "because")


def test_any_other_code_is_an_error_that_says_who_and_why() -> None:
    with pytest.raises(ResponseError, match="h:1 answered code 13: too large"):
        send_results(Command(13, remark="too large"), "h:1", QUEUE, ("K",))


@pytest.mark.parametrize("fields", [{}, FIELDS | {"queueId": "x"}, FIELDS | {"msgId": "AA"}])
def test_an_answer_without_the_place_of_each_message_breaks_the_protocol(
    fields: dict[str, str],
) -> None:
    with pytest.raises(PeerError, match="h:1"):
        send_results(Command(0, fields), "h:1", QUEUE, ("K1", "K2"))
