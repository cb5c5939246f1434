"""When a broker accepts messages at all, and how often one is retried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole, ReplicationSettings
from roquet.broker.handlers.send_context import tries_max
from roquet.errors import Refused
from roquet.protocol.bodies.tables import GroupConfig, TopicConfig
from roquet.protocol.remoting.codes import ResponseCode
from tests.broker.send_sides import NOW_MS, SEND_CONFIG, WAITING_MAX, Side, send_frame

SLAVE = replace(SEND_CONFIG, replication=ReplicationSettings(broker_role=BrokerRole.SLAVE))


def refusal(side: Side) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        side.send_context.check()
    side.store.abandon()
    return refused.value.code, refused.value.remark


async def test_a_slave_accepts_no_message(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False, send_config=SLAVE)

    assert refusal(side) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "this broker is a slave: send to its master",
    )


async def test_a_closed_gate_says_why_no_message_is_accepted(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False)
    side.send_context.check()
    side.write_gate.close("the drive is full")

    assert refusal(side) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "this broker accepts no messages: the drive is full",
    )


@pytest.mark.parametrize(("begin_ms", "accepts"), [(0, True), (NOW_MS, True), (NOW_MS + 1, False)])
async def test_messages_are_accepted_from_a_time_on(
    tmp_path: Path, begin_ms: int, *, accepts: bool
) -> None:
    config: BrokerConfig = replace(SEND_CONFIG, start_accept_send_request_time_stamp=begin_ms)
    side = Side(tmp_path, learns=False, send_config=config)

    if accepts:
        side.send_context.check()
        side.store.abandon()
    else:
        code, remark = refusal(side)
        assert code == ResponseCode.SYSTEM_ERROR
        assert f"before the Unix time of {begin_ms} ms" in remark


async def test_while_many_sends_wait_only_other_messages_are_accepted(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False, flush=True)
    side.take(*(send_frame(number, 1, {}) for number in range(WAITING_MAX)))

    side.send_context.check(is_send=False)

    code, remark = refusal(side)
    assert code == ResponseCode.SYSTEM_BUSY
    assert f"{WAITING_MAX} messages wait for the disk already" in remark


async def test_a_guard_holds_until_a_topic_changes(tmp_path: Path) -> None:
    side = Side(tmp_path, learns=False)
    guard = side.send_context.guard()
    assert guard.holds()

    side.topics.update(TopicConfig("T"))

    assert not guard.holds()
    side.store.abandon()


@pytest.mark.parametrize(
    ("version", "wanted", "tries"), [(300, None, 5), (300, 3, 3), (0, 3, 5), (0, None, 5)]
)
def test_a_client_may_say_how_often_a_message_is_retried_unless_it_is_too_old(
    version: int, wanted: int | None, tries: int
) -> None:
    assert tries_max(GroupConfig("g", retry_max_times=5), version, wanted) == tries
