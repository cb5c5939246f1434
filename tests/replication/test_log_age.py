"""How long a log has had a byte."""

from __future__ import annotations

from roquet.replication.log_age import SAMPLES_MAX, LogAgeSamples


def test_a_byte_is_as_old_as_the_first_look_that_saw_it() -> None:
    clock = LogAgeSamples()
    for end, now_ms in (100, 1_000), (100, 1_500), (250, 2_000), (300, 2_500):
        clock.note(end, now_ms)
    ages = [clock.age_ms(at, 3_000) for at in (0, 99, 100, 249, 250, 299)]
    assert ages == [2_000, 2_000, 1_000, 1_000, 500, 500]


def test_what_came_since_the_last_look_is_no_older_than_that() -> None:
    clock = LogAgeSamples()
    clock.note(100, 1_000)
    clock.note(100, 9_000)
    assert clock.age_ms(100, 9_400) == 400


def test_a_clock_that_runs_for_long_stays_small_and_tells_some_hours() -> None:
    clock = LogAgeSamples()
    looks = 40 * SAMPLES_MAX
    for number in range(looks):
        clock.note(number * 10, number * 500)
    for ago in 3, 1_000, SAMPLES_MAX, 2 * SAMPLES_MAX:
        exact_ms = ago * 500
        assert abs(clock.age_ms((looks - ago) * 10, looks * 500) - exact_ms) <= max(
            500, exact_ms * 0.02
        ), ago
    assert clock.age_ms(1, looks * 500) > 3600 * 1000
    assert len(clock._ends) <= SAMPLES_MAX
