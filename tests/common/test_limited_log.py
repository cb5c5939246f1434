"""A log that peers cannot fill: one line for each kind of event and period."""

from __future__ import annotations

import logging

import pytest

from roquet.common.limited_log import KINDS_MAX, PERIOD_S, LimitedLog, without_numbers


def test_of_one_kind_a_line_leaves_in_each_period_and_the_next_one_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = LimitedLog(logging.getLogger(__name__))
    for now in (5.0, 6.0, 4.0 + PERIOD_S, 5.0 + PERIOD_S):
        limited.warning("refused", now, "refused at=%d", now)
    assert caplog.messages == [
        "refused at=5",
        f"refused at={5 + PERIOD_S:.0f} (and 2 like it since the last such line)",
    ]


def test_kinds_do_not_hold_up_each_other(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(logging.getLogger(__name__))
    limited.warning("one", 0.0, "one")
    limited.tell(logging.ERROR, "another", 0.0, "another")
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.WARNING, "one"),
        (logging.ERROR, "another"),
    ]


def test_of_many_kinds_the_oldest_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(logging.getLogger(__name__))
    for number in range(KINDS_MAX + 1):
        limited.warning(f"kind {number}", 0.0, "refused")
    caplog.clear()

    limited.warning(f"kind {KINDS_MAX // 2}", 0.0, "still known")
    limited.warning("kind 0", 0.0, "forgotten")

    assert caplog.messages == ["forgotten"]


def test_messages_that_differ_in_numbers_are_of_one_kind() -> None:
    assert without_numbers("frame of 17 bytes at 4") == without_numbers("frame of 2048 bytes at 99")
    assert without_numbers("frame of 17 bytes") != without_numbers("offset of 17")
