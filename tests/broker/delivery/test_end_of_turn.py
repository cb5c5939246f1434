"""What is done once for many: in the turn that asked for it, or at a throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from roquet.broker.delivery.end_of_turn import NEXT_TURN_S, EndOfTurn, ThrottledWork
from tests.simulation.loop import VirtualLoop

PERIOD_S = 0.005


class Clock:
    """A loop on virtual time, what ran on it and when."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.ran_s: list[float] = []

    def work(self) -> None:
        self.ran_s.append(self.loop.time())

    def at(self, *moments_s: float, do: Callable[[], None]) -> None:
        for moment_s in moments_s:
            self.loop.call_at(moment_s, do)


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    yield clock
    clock.loop.close()


def test_a_turn_s_work_is_done_once_and_before_time_passes(clock: Clock) -> None:
    turn = EndOfTurn(clock.work)
    clock.at(1.0, 1.0, 1.0, 2.0, do=turn.due)
    clock.loop.run_for(3)
    assert clock.ran_s == [1.0, 2.0]


def test_paced_work_waits_for_the_turn_that_asked_for_it_to_send_what_it_wrote(
    clock: Clock,
) -> None:
    throttled = ThrottledWork(clock.work, PERIOD_S)
    clock.at(1.0, 2.0, do=throttled.due)
    clock.loop.run_for(3)
    assert clock.ran_s == [1.0 + NEXT_TURN_S, 2.0 + NEXT_TURN_S]


def test_paced_work_is_done_once_for_all_that_came_within_its_period(clock: Clock) -> None:
    throttled = ThrottledWork(clock.work, PERIOD_S)
    clock.at(*(1.0 + number / 1000 for number in range(11)), do=throttled.due)
    clock.loop.run_for(3)
    assert clock.ran_s == pytest.approx([1.001, 1.006, 1.011])


def test_nothing_runs_once_the_pace_was_stopped(clock: Clock) -> None:
    throttled = ThrottledWork(clock.work, PERIOD_S)
    clock.at(1.0, do=throttled.due)
    clock.at(1.0 + NEXT_TURN_S / 2, do=throttled.stop)
    clock.loop.run_for(3)
    assert clock.ran_s == []
