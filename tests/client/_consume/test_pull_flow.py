"""When a queue may be pulled again, and from whom."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.pull_flow import (
    PrefetchLimits,
    PullPosition,
    delay_after_failure_ms,
    has_room,
    sys_flag,
)
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net.routes import BrokerAddress
from roquet.errors import ConfigError, ConnectionClosed, ResponseError

MASTER = BrokerAddress(0, "10.0.0.1:10911")
SLAVE = BrokerAddress(1, "10.0.0.2:10911")


def answer(status: PullStatus, next_offset: int, suggested: int = 0) -> PullResult:
    return PullResult(status, next_offset, 0, 100, suggested)


def test_the_text_of_limits_has_their_units() -> None:
    assert repr(PrefetchLimits()) == (
        "PrefetchLimits(count_max=1000 messages, size_max=104857600 bytes, span_max=2000 offsets)"
    )
    assert repr(PrefetchLimits(total_size_max=5)).endswith("offsets, total_size_max=5 bytes)")
    assert repr(PullStatus.FOUND) == "PullStatus.FOUND"


@pytest.mark.parametrize("status", PullStatus)
def test_offset_and_suggested_broker_follow_every_answer(status: PullStatus) -> None:
    position = PullPosition(5)
    position.advance(answer(status, 9, suggested=1), 0)
    assert (position.offset, position.broker_id) == (9, 1)
    position.advance(answer(status, 12), 0)
    assert (position.offset, position.broker_id) == (12, 0)


def test_whatever_brings_something_is_followed_by_a_pull_at_once() -> None:
    assert PullPosition(5).advance(answer(PullStatus.FOUND, 9), 0) == 0
    assert PullPosition(5).advance(answer(PullStatus.NO_MATCHED, 9), 0) == 0


def test_a_pull_that_was_held_is_followed_by_another_at_once() -> None:
    assert PullPosition(5).advance(answer(PullStatus.NO_NEW, 5), 15_000) == 0


@pytest.mark.parametrize("status", [PullStatus.NO_NEW, PullStatus.NO_MATCHED])
def test_a_broker_that_changes_nothing_and_does_not_hold_is_not_asked_without_pause(
    status: PullStatus,
) -> None:
    assert PullPosition(5).advance(answer(status, 5), 40) == 960


@pytest.mark.parametrize("status", [PullStatus.FOUND, PullStatus.NO_NEW, PullStatus.NO_MATCHED])
@pytest.mark.parametrize("next_offset", [5, 4, -1])
def test_a_broker_that_leads_nowhere_or_back_is_not_asked_without_pause(
    status: PullStatus, next_offset: int
) -> None:
    """Nobody stops it from giving the same messages for ever."""
    assert PullPosition(5).advance(answer(status, next_offset), 40) == 960


def test_an_illegal_offset_waits_ten_seconds() -> None:
    assert PullPosition(5).advance(answer(PullStatus.OFFSET_ILLEGAL, 100), 0) == 10_000


def test_flow_control_is_waited_for_briefly_and_any_other_failure_a_second() -> None:
    assert delay_after_failure_ms(ResponseError(215, "busy", "a:1")) == 20
    assert delay_after_failure_ms(ResponseError(1, "broken", "a:1")) == 1000
    assert delay_after_failure_ms(ConnectionClosed("gone")) == 1000


def test_only_a_master_gets_an_offset_to_commit_with_a_pull() -> None:
    assert sys_flag(MASTER, 7) == 0b111
    assert sys_flag(SLAVE, 7) == 0b110
    assert sys_flag(MASTER, 0) == 0b110


@pytest.mark.parametrize(
    ("limits", "room"),
    [
        (PrefetchLimits(3, 30, 9), True),
        (PrefetchLimits(2, 30, 9), False),
        (PrefetchLimits(3, 29, 9), False),
        (PrefetchLimits(3, 30, 8), False),
    ],
)
def test_pulling_pauses_beyond_any_limit(limits: PrefetchLimits, room: bool) -> None:
    queue = ProcessQueue(0)
    queue.take([(0, 10), (4, 10), (9, 10)], 10)
    assert has_room(queue, limits) is room


def test_the_span_does_not_count_in_order() -> None:
    queue = ProcessQueue(0)
    queue.take([(0, 10), (5000, 10)], 5001)
    assert has_room(queue, PrefetchLimits(), is_ordered=True)
    assert not has_room(queue, PrefetchLimits())


@pytest.mark.parametrize(
    ("queues", "count_max", "size_max"),
    [(0, 100, 1000), (1, 100, 1000), (3, 33, 333), (7000, 1, 1)],
)
def test_a_total_is_divided_by_the_number_of_queues(
    queues: int, count_max: int, size_max: int
) -> None:
    limits = PrefetchLimits(7, 8, 9, total_count_max=100, total_size_max=1000)
    assert limits.of_queue(queues) == PrefetchLimits(count_max, size_max, 9)


def test_one_total_leaves_the_other_limit_as_it_is() -> None:
    assert PrefetchLimits(7, 8, 9, total_size_max=30).of_queue(3) == PrefetchLimits(7, 10, 9)
    assert PrefetchLimits(7, 8, 9, total_count_max=30).of_queue(3) == PrefetchLimits(10, 8, 9)
    assert PrefetchLimits(7, 8, 9).of_queue(3) == PrefetchLimits(7, 8, 9)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("count_max", -1, 0),
        ("size_max", 2**63, 0),
        ("span_max", None, 0),
        ("total_count_max", 0, 1),
        ("total_size_max", "1", 1),
    ],
)
def test_a_limit_that_cannot_be_used_is_named(name: str, value: Any, least: int) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is {value!r}: allowed are {least} to "):
        PrefetchLimits(**{name: value})


def test_the_limits_are_apaches_unless_told_otherwise() -> None:
    assert PrefetchLimits() == PrefetchLimits(count_max=1000, size_max=104_857_600, span_max=2000)
