"""Periodic work goes on whatever it comes to."""

from __future__ import annotations

import asyncio

import pytest

from roquet.broker.background import each
from tests.simulation.simulation import Simulation


def told(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.name == "roquet.broker.background" for record in caplog.records)


def test_work_that_fails_is_told_of_once_and_goes_on(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = ["", "no room", "no room", "", "no room", ""]
    done: list[str] = []

    def work() -> None:
        done.append(outcomes[len(done) % len(outcomes)])
        if done[-1]:
            raise OSError(done[-1])

    sim.host("10.0.0.1").start(lambda: each(1000, work))
    sim.run_for(6.5)
    assert (done, told(caplog)) == (outcomes, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_work_that_takes_its_time_is_waited_for(
    sim: Simulation, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    began: list[float] = []

    async def work() -> None:
        began.append(sim.now_s)
        await asyncio.sleep(2.5)
        if fails:
            raise OSError("no room")

    sim.host("10.0.0.1").start(lambda: each(1000, work))
    sim.run_for(8.5)
    assert [round(at - began[0], 3) for at in began] == [0, 3.5, 7]
    assert told(caplog) == fails
