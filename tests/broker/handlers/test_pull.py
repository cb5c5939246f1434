"""Where a pull's answer sends its consumer, from a master and from a slave.

See docs/broker/consumers.md#reading-from-slaves and docs/protocol/consuming.md#answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole, ReplicationSettings
from roquet.common.steps import finished
from roquet.protocol.bodies.tables import GroupConfig
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullAnswer
from roquet.protocol.json.dialect import load
from roquet.protocol.records import record
from roquet.protocol.records.message import OFFSET_MOVED_TOPIC
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command, decode
from tests.broker.pulls import FIRST_QUEUE_END, USUAL, Side, pull_frame

SLAVE = BrokerConfig(replication=ReplicationSettings(broker_role=BrokerRole.SLAVE))
CHECKING_SLAVE = BrokerConfig(
    replication=ReplicationSettings(broker_role=BrokerRole.SLAVE, offset_check_in_slave=True)
)
FOUND, NOTHING_NEW = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
AGAIN, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED
END, BEYOND = FIRST_QUEUE_END, FIRST_QUEUE_END + 7
SLOW_READER = GroupConfig("group", broker_id=3, which_broker_when_consume_slowly=2)


def pulled(
    side: Callable[[], Side], offset: int, flags: int = 0, commit_offset: int = 5
) -> tuple[int, int, int, int]:
    """Code, broker to go on at, offset to go on at, and stored progress, of one pull that does not
    wait.
    """

    async def run() -> tuple[int, int, int, int]:
        broker = side()
        broker.groups.update(SLOW_READER)
        asked = replace(
            USUAL, queue_offset=offset, sys_flag=SUBSCRIPTION | flags, commit_offset=commit_offset
        )
        answer = decode(broker.pull(pull_frame(1, asked))[0])
        told = PullAnswer.read(answer.fields)
        stored = broker.offsets.to_table().offsets.get("T@group", {}).get(0, -1)
        return answer.code, told.suggest_which_broker_id, told.next_begin_offset, stored

    return asyncio.run(run())


@pytest.mark.parametrize("config", [BrokerConfig(), SLAVE])
def test_who_is_far_behind_is_sent_where_the_group_says_and_comes_back_once_it_is_not(
    config: BrokerConfig,
) -> None:
    code, broker_id, next_offset, _ = pulled(lambda: Side(config), 0)
    assert (code, broker_id) == (FOUND, 2)
    assert next_offset > 0
    assert pulled(lambda: Side(config), END - 1)[:3] == (FOUND, 3, END)
    assert pulled(lambda: Side(config), END)[:3] == (NOTHING_NEW, 3, END)


@pytest.mark.parametrize("config", [BrokerConfig(), SLAVE])
def test_where_slaves_are_not_to_be_read_everybody_is_served_and_sent_to_the_master(
    config: BrokerConfig,
) -> None:
    assert pulled(lambda: Side(config, slave_reads=False), 0)[:2] == (FOUND, 0)


def test_a_slave_corrects_nobody_who_may_only_be_ahead_of_its_copy() -> None:
    assert pulled(Side, BEYOND)[:3] == (MOVED, 3, END)
    assert pulled(lambda: Side(SLAVE), BEYOND)[:3] == (AGAIN, 3, BEYOND)
    assert pulled(lambda: Side(CHECKING_SLAVE), BEYOND)[:3] == (MOVED, 3, END)


def test_a_pull_brings_no_group_beyond_the_end_of_a_masters_queue() -> None:
    assert pulled(Side, 0, COMMIT_OFFSET, commit_offset=BEYOND)[3] == END


def test_a_slave_keeps_no_progress_from_pulls() -> None:
    assert pulled(Side, 0, COMMIT_OFFSET)[3] == 5
    assert pulled(lambda: Side(SLAVE), 0, COMMIT_OFFSET)[3] == -1


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_less_than_no_message_cannot_be_pulled(count: int) -> None:
    async def run() -> Command:
        broker, asked = Side(), replace(USUAL, sys_flag=SUBSCRIPTION, max_msg_nums=count)
        return decode(broker.pull(pull_frame(1, asked))[0])

    assert asyncio.run(run()).code == ResponseCode.SYSTEM_ERROR


def test_no_more_pulls_wait_than_may() -> None:
    async def run() -> tuple[list[tuple[int, int]], Command]:
        broker = Side(held_max=2)
        asked = replace(
            USUAL, queue_offset=END, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=1000
        )
        answers = [broker.pull(pull_frame(number, asked)) for number in range(3)]
        assert answers[:2] == [[], []]
        return broker.held(), decode(answers[2][0])

    held, refused = asyncio.run(run())
    assert held == [(0, END)] * 2
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "[OVERLOAD]2 pulls wait for messages already (pullThreadPoolQueueCapacity)",
    )


def test_a_pull_that_a_master_sends_elsewhere_is_written_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a topic of its own, so that operators see which groups lost their place; in the log once a
    minute.
    """
    caplog.set_level(logging.INFO, "roquet.broker.offsets.moved_event")

    async def events(side: Callable[[], Side], times: int = 1) -> list[bytes]:
        broker = side()
        for number in range(times):
            asked = replace(USUAL, queue_offset=BEYOND, sys_flag=SUBSCRIPTION)
            broker.pull(pull_frame(number, asked))
        found = broker.store.fetch(OFFSET_MOVED_TOPIC, 0, 0, 32, TagFilter.parse("group"))
        return [bytes(record) for record in found.records]

    (event,) = asyncio.run(events(Side))
    message = record.decode(event)
    assert (message.topic, message.properties) == (
        OFFSET_MOVED_TOPIC,
        {"TAGS": "group", "KEYS": "group"},
    )
    queue = {"brokerName": "b", "queueId": 0, "topic": "T"}
    assert load(message.body) == {
        "consumerGroup": "group",
        "messageQueue": queue,
        "offsetNew": END,
        "offsetRequest": BEYOND,
    }
    (line,) = [line for line in caplog.messages if "pull offset" in line]
    assert "group=group topic=T queue=0" in line
    assert line.endswith(f" offset={BEYOND} new_offset={END}")
    caplog.clear()
    assert b"".join(asyncio.run(events(Side, 3))).count(b"offsetRequest") == 3
    assert len([line for line in caplog.messages if "pull offset" in line]) == 1
    assert asyncio.run(events(lambda: Side(SLAVE))) == []


def test_what_a_group_is_given_is_counted() -> None:
    async def counted() -> Side:
        broker = Side()
        for offset in (0, 3, END):
            broker.pull(pull_frame(1, replace(USUAL, queue_offset=offset, sys_flag=SUBSCRIPTION)))
        return broker

    broker = asyncio.run(counted())
    traffic = broker.traffic
    assert (traffic.found, traffic.missed) == (2, 1)
    items = traffic.items(is_detailed=False)
    assert finished(items["GROUP_GET_NUMS"]())["T@group"].value == traffic.messages > 2
    assert finished(items["GROUP_GET_SIZE"]())["T@group"].value > traffic.messages * 90
