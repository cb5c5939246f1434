"""How fast a broker is, under the names that tools read.

See docs/broker/statistics.md#runtime-information.
"""

from __future__ import annotations

import pytest

from roquet.broker.metrics.rates import Rates, TrafficTotals

NOON_MS = 1_700_000_000_000


def after(seconds: int, a_second: TrafficTotals) -> dict[str, str]:
    """The figures after so many seconds with as much in each."""
    rates = Rates()
    flow = TrafficTotals()
    for second in range(seconds + 1):
        flow = TrafficTotals(*(second * value for value in a_second))
        rates.sample(flow, NOON_MS + 1000 * second, day=1)
    return rates.figures(flow)


def test_rates_are_of_the_last_ten_seconds_minute_and_ten_minutes() -> None:
    rates = Rates()
    stored = 0
    for second in range(700):
        stored += 100 if second >= 690 else 10
        rates.sample(TrafficTotals(stored), NOON_MS + 1000 * second, day=1)
    assert rates.figures(TrafficTotals(stored))["putTps"] == "100.0 25.0 11.5"


@pytest.mark.parametrize(
    ("seconds", "rate"), [(0, "0.0 0.0 0.0"), (3, "7.0 7.0 7.0"), (20, "7.0 7.0 7.0")]
)
def test_a_span_that_is_not_over_yet_is_taken_as_long_as_it_is(seconds: int, rate: str) -> None:
    assert after(seconds, TrafficTotals(stored=7))["putTps"] == rate


def test_pulls_and_the_messages_they_give_have_rates_of_their_own() -> None:
    figures = after(5, TrafficTotals(stored=1, found=2, missed=3, given=40))
    of_last_ten_s = {
        name: float(text.split()[0]) for name, text in figures.items() if name.endswith("Tps")
    }
    assert of_last_ten_s == {
        "putTps": 1,
        "getFoundTps": 2,
        "getMissTps": 3,
        "getTotalTps": 5,
        "getTransferedTps": 40,
        "getTransferredTps": 40,
    }


def test_the_totals_of_the_mornings_move_on_at_midnight() -> None:
    rates = Rates()
    for day, stored in ((1, 10), (1, 20), (2, 30), (2, 40), (3, 50)):
        rates.sample(TrafficTotals(stored, given=stored * 2), NOON_MS, day)
    figures = rates.figures(TrafficTotals(60, given=120))
    names = (
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalTodayMorning",
    )
    assert [figures[name] for name in names] == ["30", "50", "60", "100"]


def test_times_are_shown_of_the_minute_that_is_over() -> None:
    rates = Rates()
    rates.sample(TrafficTotals(), NOON_MS, day=1)
    for messages, ms in ((900, 0), (90, 7), (9, 80), (1, 12_000)):
        rates.took(messages, ms)
    assert "[<=0ms]:0 [0~10ms]:0 " in rates.figures(TrafficTotals())["putMessageDistributeTime"]
    rates.sample(TrafficTotals(), NOON_MS + 60_000, day=1)
    figures = rates.figures(TrafficTotals())
    counts = [int(part.rpartition(":")[2]) for part in figures["putMessageDistributeTime"].split()]
    assert counts == [900, 90, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert (figures["putLatency99"], figures["putLatency999"]) == ("7.00", "80.00")
    assert figures["putMessageEntireTimeMax"] == "12000"
