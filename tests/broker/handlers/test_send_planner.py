"""What is decided about a send, by its plan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.broker.handlers.send_plan import SendPlan
from roquet.broker.handlers.send_planner import SendPlanner
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.records.message import (
    COMPRESSED,
    MULTI_TAGS,
    TRANSACTION_PREPARED,
    Permission,
)
from roquet.protocol.remoting.command import ONE_WAY, decode
from tests.broker.send_sides import SEND_CONFIG, Side, send_frame


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    side = Side(tmp_path, learns=False)
    yield side
    side.store.abandon()


def plan_of(side: Side, frame: bytes) -> SendPlan:
    plan, _ = SendPlanner(side.send_context).plan(decode(frame), side.connection)
    return plan


async def test_sends_that_differ_in_their_values_have_one_plan(side: Side) -> None:
    plans = {
        plan_of(
            side,
            send_frame(number, number, {"UNIQ_KEY": str(number)}, bytes(number), born_ms=number),
        )
        for number in range(1, 4)
    }

    assert len(plans) == 1


async def test_a_plan_holds_though_its_request_made_the_topic(side: Side) -> None:
    assert plan_of(side, send_frame(1, 0, {}, topic="New")).guard.holds()


async def test_a_dead_letter_goes_to_the_only_queue_and_does_not_wait(side: Side) -> None:
    frame = send_frame(1, 0, {"DELAY": "2"}, topic="%RETRY%group", reconsume_times=16)

    plan, values = SendPlanner(side.send_context).plan(decode(frame), side.connection)

    assert (plan.topic, plan.is_dead_letter, plan.level) == ("%DLQ%group", True, 0)
    assert (values.queue_id, values.pairs) == (0, {"DELAY": "0"})


async def test_a_half_message_is_delayed_when_it_is_committed(side: Side) -> None:
    frame = send_frame(1, 0, {"TRAN_MSG": "true", "DELAY": "2"}, sys_flag=TRANSACTION_PREPARED)

    plan = plan_of(side, frame)

    assert (plan.is_half, plan.is_queued, plan.level) == (True, True, 0)


async def test_a_prepared_message_is_in_no_queue(side: Side) -> None:
    plan = plan_of(side, send_frame(1, 0, {}, sys_flag=TRANSACTION_PREPARED))

    assert (plan.is_half, plan.is_queued) == (False, False)


async def test_the_flag_says_that_a_topics_messages_may_have_several_tags(side: Side) -> None:
    side.topics.update(TopicConfig("TopicTest", filter_type="MULTI_TAG"))

    assert plan_of(side, send_frame(1, 0, {}, sys_flag=COMPRESSED)).sys_flag == (
        COMPRESSED | MULTI_TAGS
    )


async def test_one_way_sends_have_another_plan(side: Side) -> None:
    assert plan_of(side, send_frame(1, 0, {}, flag=ONE_WAY)).is_one_way


async def test_a_broker_without_write_permission_refuses_ordered_topics(tmp_path: Path) -> None:
    side = Side(
        tmp_path, learns=False, send_config=replace(SEND_CONFIG, broker_permission=Permission.READ)
    )
    assert plan_of(side, send_frame(1, 0, {}))

    side.topics.set_ordered({"TopicTest"})

    with pytest.raises(Refused, match="brokerPermission does not allow"):
        plan_of(side, send_frame(1, 0, {}))
    side.store.abandon()
