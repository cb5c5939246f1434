"""When a send is answered: at once, later or never."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import BINARY, JSON, ONE_WAY, decode
from tests.broker.send_sides import Side, batch_frame, send_frame


@pytest.mark.parametrize("header_type", [JSON, BINARY])
async def test_an_answer_has_id_queue_and_offset_of_the_message(
    tmp_path: Path, header_type: int
) -> None:
    side = Side(tmp_path, learns=False)
    side.take(send_frame(6, 3, {}, header_type=header_type))
    at = side.store.log.end

    (frame,) = side.take(send_frame(7, 3, {}, header_type=header_type))

    answer = decode(frame)
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, 7)
    fields = answer.fields
    assert (fields["msgId"], fields["queueId"], fields["queueOffset"]) == (
        f"{side.store.config.store_host.hex().upper()}{at:016X}",
        "3",
        "1",
    )
    side.store.abandon()


async def test_an_answer_to_a_batch_has_the_ids_of_all_messages(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False)

    (frame,) = side.take(batch_frame(7, [(b"a", {}), (b"b", {}), (b"c", {})]))

    assert len(decode(frame).fields["msgId"].split(",")) == 3
    side.store.abandon()


async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False)

    assert side.take(send_frame(7, 3, {}, flag=ONE_WAY)) == []
    assert side.store.max_offset("TopicTest", 3) == 1
    side.store.abandon()


async def test_an_answer_waits_for_the_flush_unless_the_message_says_no(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False, flush=True)

    assert side.take(send_frame(7, 3, {}), send_frame(8, 3, {"WAIT": "true"})) == []
    assert len(side.take(send_frame(9, 3, {"WAIT": "false"}))) == 1
    assert side.ack_gate.figures()["putMessageWaiting"] == "2"
    side.store.abandon()
