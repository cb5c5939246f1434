"""Of failures in a row the first is told, and that they have ended."""

from __future__ import annotations

from roquet.common.failure_streak import FailureStreak


def test_the_first_failure_in_a_row_is_news_and_so_is_the_first_success_after_it() -> None:
    streak = FailureStreak()
    assert not streak.is_on
    assert not streak.ended(), "a task that never failed has not recovered"

    for _ in range(2):
        assert [streak.failed() for _ in range(3)] == [True, False, False]
        assert streak.is_on
        assert [streak.ended() for _ in range(3)] == [True, False, False]
        assert not streak.is_on


def test_a_failure_of_another_kind_is_news_within_the_row() -> None:
    streak = FailureStreak()

    news = [streak.failed(kind) for kind in ("full", "full", "broken", "broken", "full")]

    assert news == [True, False, True, False, True]
    assert streak.ended()
    assert streak.failed("full"), "the row before has ended"
