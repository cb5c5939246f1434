"""By how much a wall clock was set since something was stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.delay import stamp_clock
from roquet.broker.delay.stamp_clock import STEPS_MAX, StampClock
from roquet.common.runtime import Runtime

START_MS = 1_700_000_000_000


class Host:
    """A wall clock and a steady one; `hiccups_ms` pass between the next readings of the two."""

    def __init__(self) -> None:
        self.steady_ms = 0.0
        self.ahead_ms = START_MS
        self.end = 0
        self.hiccups_ms: list[int] = []
        self.clock = StampClock(Runtime(self._now_ms, steady_ms=self._steady_ms))
        self.clock.follow(self)

    def _now_ms(self) -> int:
        return self.ahead_ms + int(self.steady_ms)

    def _steady_ms(self) -> float:
        self.steady_ms += self.hiccups_ms.pop() if self.hiccups_ms else 0
        return self.steady_ms


@given(
    st.lists(
        st.tuples(st.integers(-(10**11), 10**11), st.floats(0, 10**9), st.integers(0, 5)),
        max_size=30,
    )
)
def test_it_knows_the_sum_of_all_steps_since_any_place(steps: list[tuple[int, float, int]]) -> None:
    host = Host()
    host.clock.now_ms()
    stored: list[tuple[int, int]] = []
    for step_ms, pause_ms, records in steps:
        host.steady_ms += pause_ms
        host.ahead_ms += step_ms
        for _ in range(records):
            host.clock.now_ms()
            stored.append((host.end, host.ahead_ms))
            host.end += 100
    host.clock.now_ms()
    places = np.array([place for place, _ in stored], np.int64)
    expected = [host.ahead_ms - ahead_ms for _, ahead_ms in stored]
    single = [host.clock.set_since(place) for place, _ in stored]
    assert all(abs(found - right) <= 4 for found, right in zip(single, expected, strict=True)), (
        single,
        expected,
    )
    assert host.clock.set_since_each(places).tolist() == single


def test_an_interruption_between_two_readings_is_no_step() -> None:
    host = Host()
    host.clock.now_ms()
    host.steady_ms += 10
    host.hiccups_ms = [500]
    now_ms = host.clock.now_ms()
    assert host.clock.set_since(-1) == 0
    assert now_ms == START_MS + 510, "it was read again"


def test_a_clock_that_never_rests_is_kept_within_bounds_and_known_of_late() -> None:
    host = Host()
    aheads: list[int] = []
    for number in range(3 * STEPS_MAX):
        host.ahead_ms += 10 if number % 3 else -15
        host.clock.now_ms()
        aheads.append(host.ahead_ms)
        host.end += 1
    assert len(host.clock._places) == STEPS_MAX
    for place in range(2 * STEPS_MAX + 1, 3 * STEPS_MAX):
        assert host.clock.set_since(place) == aheads[-1] - aheads[place]


def test_a_step_is_told_once_and_an_ordinary_correction_not_at_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host()
    for step_ms in (0, 3, -900, 7_200_000, 0, 0):
        host.ahead_ms += step_ms
        host.clock.now_ms()
    lines = [
        record.getMessage() for record in caplog.records if record.name == stamp_clock.log.name
    ]
    assert len(lines) == 1
    assert "step_s=+7200.000" in lines[0]


def test_time_that_is_let_pass_is_no_step() -> None:
    host = Host()
    host.clock.now_ms()
    host.end = 100
    before_ms, steady_ms = host.clock.now_ms(), host.clock.steady_ms()
    host.clock.let_pass(3_600_000)
    host.clock.let_pass(1_000)

    assert host.clock.now_ms() == before_ms + 3_601_000
    assert host.clock.steady_ms() == steady_ms + 3_601_000
    assert host.clock.set_since(0) == 0
