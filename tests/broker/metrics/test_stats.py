"""Sums and rates of the last minute, hour and day.

See docs/broker/statistics.md#counts-by-topic-and-group.
"""

from __future__ import annotations

from roquet.broker.metrics.stats import Stats, Summary, Total, Window
from roquet.common.steps import finished, in_one


class Counted:
    """One item whose totals a test sets."""

    def __init__(self) -> None:
        self.totals: dict[str, Total] = {}
        self.stats = Stats({"TOPIC_PUT_NUMS": in_one(lambda: self.totals)})

    def minute(self, key: str = "T") -> Summary:
        return self.stats.summary("TOPIC_PUT_NUMS", key)


def test_what_was_counted_before_the_first_sample_counts_as_of_the_period_before_it() -> None:
    counted = Counted()
    counted.totals["T"] = Total(50, 10)
    assert counted.minute() == Summary()
    finished(counted.stats.sample(Window.MINUTE, 1_000_000))
    assert counted.minute() == Summary(sum=50, tps=5.0, avgpt=5.0)


def test_what_was_deleted_and_made_again_between_two_looks_begins_anew() -> None:
    counted = Counted()
    for sample, messages in enumerate((100, 10, 12), 1):
        counted.totals["T"] = Total(messages, messages)
        finished(counted.stats.sample(Window.MINUTE, 10_000 * sample))
    assert counted.minute() == Summary(sum=12, tps=0.6, avgpt=1.0)


def test_a_minute_forgets_what_is_older_than_its_seven_samples() -> None:
    counted = Counted()
    for sample in range(1, 11):
        counted.totals["T"] = Total(100 * sample, sample)
        finished(counted.stats.sample(Window.MINUTE, 10_000 * sample))
    assert counted.minute() == Summary(sum=600, tps=10.0, avgpt=100.0)


def test_windows_are_sampled_by_themselves() -> None:
    counted = Counted()
    counted.totals["T"] = Total(60, 60)
    finished(counted.stats.sample(Window.HOUR, 0))
    described = finished(counted.stats.describe("TOPIC_PUT_NUMS", "T"))
    assert described == {
        "statsMinute": Summary(),
        "statsHour": Summary(sum=60, tps=0.1, avgpt=1.0),
        "statsDay": Summary(),
    }


def test_what_nobody_counted_is_not_described() -> None:
    counted = Counted()
    counted.totals["T"] = Total(1, 1)
    assert finished(counted.stats.describe("TOPIC_PUT_NUMS", "U")) is None
    assert finished(counted.stats.describe("TOPIC_GET_NUMS", "T")) is None


def test_a_key_that_is_gone_starts_anew_when_it_comes_back() -> None:
    counted = Counted()
    counted.totals["T"] = Total(1000, 1)
    finished(counted.stats.sample(Window.MINUTE, 10_000))
    del counted.totals["T"]
    finished(counted.stats.sample(Window.MINUTE, 20_000))
    counted.totals["T"] = Total(5, 1)
    finished(counted.stats.sample(Window.MINUTE, 30_000))
    assert counted.minute().sum == 5


def test_a_day_has_twenty_four_hours() -> None:
    counted = Counted()
    for hour in range(30):
        counted.totals["T"] = Total(hour, hour)
        finished(counted.stats.sample(Window.DAY, hour * 3_600_000))
    assert counted.stats.summary("TOPIC_PUT_NUMS", "T", Window.DAY).sum == 24
