"""The rates that a member tells are those of the last minute, its failures those of the hour."""

from __future__ import annotations

import pytest

from roquet.client._consume.statistics import SAMPLE_PERIOD_S, MemberStatistics


def run(statistics: MemberStatistics, begin_s: float, seconds: int, acked: int) -> float:
    """Messages per second, each taken within 4 ms, in pulls of ten that take 20 ms; the end."""
    counters = statistics.of_topic("T", begin_s)
    for second in range(seconds):
        counters.pulls += acked // 10
        counters.pulled += acked
        counters.pull_ms += 20 * (acked // 10)
        counters.acked += acked
        counters.timed += acked
        counters.timed_ms += 4 * acked
        if (second + 1) % SAMPLE_PERIOD_S == 0:
            statistics.sample(begin_s + second + 1)
    return begin_s + seconds


@pytest.mark.parametrize("seconds", [5, 60, 600])
def test_rates_are_there_from_the_beginning(seconds: int) -> None:
    statistics = MemberStatistics()
    end_s = run(statistics, 1000, seconds, acked=50)
    assert statistics.consume_status("T", end_s) == {
        "consumeFailedMsgs": 0,
        "consumeFailedTPS": 0.0,
        "consumeOKTPS": 50.0,
        "consumeRT": 4.0,
        "pullRT": 20.0,
        "pullTPS": 50.0,
    }


def test_a_minute_later_the_rates_are_those_of_that_minute() -> None:
    statistics = MemberStatistics()
    end_s = run(statistics, run(statistics, 1000, 120, acked=50), 60, acked=10)
    assert statistics.consume_status("T", end_s)["consumeOKTPS"] == 10.0


def test_without_messages_the_time_of_the_last_hour_is_told() -> None:
    statistics = MemberStatistics()
    end_s = run(statistics, run(statistics, 1000, 120, acked=50), 120, acked=0)
    told = statistics.consume_status("T", end_s)
    assert (told["consumeOKTPS"], told["pullRT"], told["consumeRT"]) == (0.0, 0.0, 4.0)


def test_failures_are_those_of_the_last_hour() -> None:
    statistics = MemberStatistics()
    statistics.of_topic("T", 0).failed += 30
    now_s = run(statistics, 0, 60, acked=0)
    told = statistics.consume_status("T", now_s)
    assert (told["consumeFailedMsgs"], told["consumeFailedTPS"]) == (30, 0.5)
    now_s = run(statistics, now_s, 3000, acked=0)
    assert statistics.consume_status("T", now_s)["consumeFailedMsgs"] == 30
    now_s = run(statistics, now_s, 1200, acked=0)
    assert statistics.consume_status("T", now_s)["consumeFailedMsgs"] == 0


def test_of_a_topic_that_is_not_consumed_all_is_zero() -> None:
    assert set(MemberStatistics().consume_status("T", 5).values()) == {0}
