"""Which files of the log go, and when."""

from __future__ import annotations

import pytest

from roquet.storage.retention import FILES_PER_PASS, Retention, Usage

HOUR_MS = 3_600_000
RULES = Retention(kept_ms=48 * HOUR_MS, hours=frozenset({4, 16}))
NOW_MS = 1_700_000_000_000
AGES_H = [80, 50, 49, 47, 60, 1]
"""Of the files, in hours; the fifth is older than the fourth, as after a copy."""
MODIFIED = [NOW_MS - hours * HOUR_MS for hours in AGES_H]


def go(rules: Retention = RULES, hour: int = 5, used: float = 0.5, *, asked: bool = False) -> int:
    return rules.files_to_go(MODIFIED, NOW_MS, hour, used, asked=asked)


def test_expired_files_go_in_their_hour_up_to_the_first_that_has_not() -> None:
    assert [go(hour=hour) for hour in (3, 4, 5, 16)] == [0, 3, 0, 3]


def test_expired_files_go_at_any_hour_when_asked_for_or_when_the_drive_fills() -> None:
    assert (go(asked=True), go(used=0.75), go(used=0.76)) == (3, 0, 3)


def test_a_drive_that_is_nearly_full_takes_the_oldest_whatever_their_age() -> None:
    assert (go(used=0.85), go(used=0.86)) == (3, len(MODIFIED))
    assert go(Retention(kept_ms=RULES.kept_ms, forcibly=False), used=0.99) == 3


@pytest.mark.parametrize(
    ("used_max", "used", "count"), [(0.0, 0.09, 0), (0.0, 0.11, 3), (1.0, 0.94, 0), (1.0, 0.96, 3)]
)
def test_the_ratio_that_starts_it_is_between_a_tenth_and_nineteen_twentieths(
    used_max: float, used: float, count: int
) -> None:
    rules = Retention(kept_ms=RULES.kept_ms, used_max=used_max, forced_above=1.0)
    assert go(rules, used=used) == count


def test_a_pass_takes_so_many_and_no_more() -> None:
    old = [0] * (FILES_PER_PASS + 3)
    assert RULES.files_to_go(old, NOW_MS, 4, 0.1, asked=False) == FILES_PER_PASS
    assert RULES.files_to_go(old, NOW_MS, 4, 0.99, asked=False) == FILES_PER_PASS
    assert RULES.files_to_go([], NOW_MS, 4, 0.99, asked=False) == 0


def test_the_worse_of_log_and_queues_decides_and_a_remark_shows_all() -> None:
    assert (Usage(0.3, 0.8, 0.9).worst, Usage(0.7, 0.2, 0.1).worst) == (0.8, 0.7)
    assert str(Usage(0.3, 0.8, 0.95)) == "CL: 0.30 CQ: 0.80 INDEX: 0.95"
