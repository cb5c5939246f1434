"""A log that peers cannot fill: one line for each kind of event and period."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from roquet.common.limited_log import KINDS_MAX, PERIOD_S, LimitedLog, without_numbers
from tests.simulation.loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.fixture
def limited() -> LimitedLog:
    return LimitedLog(logging.getLogger(__name__))


def test_of_one_kind_a_line_leaves_in_each_period_and_the_next_one_counts_the_others(
    loop: VirtualLoop, limited: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for at_s in (5.0, 6.0, 4.0 + PERIOD_S, 5.0 + PERIOD_S):
        loop.call_at(at_s, limited.warning, "refused", "refused at=%d", at_s)
    loop.run_for(2 * PERIOD_S)
    assert caplog.messages == [
        "refused at=5",
        f"refused at={5 + PERIOD_S:.0f} (and 2 like it since the last such line)",
    ]


def test_kinds_do_not_hold_up_each_other(
    loop: VirtualLoop, limited: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    loop.call_soon(limited.warning, "one", "one")
    loop.call_soon(limited.tell, logging.ERROR, "another", "another")
    loop.run_for(0)
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.WARNING, "one"),
        (logging.ERROR, "another"),
    ]


def test_of_many_kinds_the_oldest_are_forgotten(
    loop: VirtualLoop, limited: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(KINDS_MAX + 1):
        loop.call_soon(limited.warning, f"kind {number}", "refused")
    loop.run_for(0)
    caplog.clear()

    loop.call_soon(limited.warning, f"kind {KINDS_MAX // 2}", "still known")
    loop.call_soon(limited.warning, "kind 0", "forgotten")
    loop.run_for(0)

    assert caplog.messages == ["forgotten"]


def test_messages_that_differ_in_numbers_are_of_one_kind() -> None:
    assert without_numbers("frame of 17 bytes at 4") == without_numbers("frame of 2048 bytes at 99")
    assert without_numbers("frame of 17 bytes") != without_numbers("offset of 17")
