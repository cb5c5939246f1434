"""Background tasks: their failures are logged, they end when their owner does, and waits end in
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import pytest

from roquet.client._net.tasks import (
    Tasks,
    all_together,
    attempt,
    cancel,
    deadline_after,
    each_in_turn,
    every,
    pause,
)
from roquet.errors import ConnectionClosed, RoquetError
from tests.simulation.simulation import Simulation

T = TypeVar("T")

EXPECTED: Final = "client task failed: task='work' error=expected"


async def forever() -> None:
    await asyncio.Event().wait()


async def expected() -> None:
    raise RoquetError("expected")


async def unexpected() -> None:
    raise ValueError("unexpected")


def run(sim: Simulation, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return sim.host("10.0.0.1").call(work)


# one attempt


async def test_an_attempt_says_whether_it_succeeded() -> None:
    assert await attempt(asyncio.sleep(0), "work") is True
    assert await attempt(expected(), "work") is False


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
async def test_an_expected_failure_is_a_line_of_the_level_that_is_asked_for(
    level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    await attempt(expected(), "work", level)

    (record,) = caplog.records
    assert (record.levelno, record.getMessage(), record.exc_info) == (level, EXPECTED, None)


async def test_an_unexpected_failure_is_an_error_with_its_place_at_any_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await attempt(unexpected(), "work", logging.DEBUG) is False

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "client task failed unexpectedly: task='work'"
    assert "ValueError: unexpected" in caplog.text


async def test_an_attempt_that_is_cancelled_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    task = asyncio.create_task(attempt(forever(), "work"))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.records == []


# work again and again


def test_work_is_done_after_each_period_and_waits_for_the_one_before(sim: Simulation) -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(sim.now_s)
        await asyncio.sleep(1)

    async def main() -> float:
        began = sim.now_s
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(every(10, work, "work"), 35)
        return began

    began = run(sim, main)
    assert [at - began for at in begun] == pytest.approx([10, 21, 32])


def test_of_failures_in_a_row_the_first_is_a_warning(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "roquet.client._net.tasks")
    outcomes = iter([expected, expected, expected, lambda: asyncio.sleep(0), expected])

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(every(1, lambda: next(outcomes)(), "work"), 5.5)

    run(sim, main)
    levels = [record.levelname for record in caplog.records if record.getMessage() == EXPECTED]
    assert levels == ["WARNING", "DEBUG", "DEBUG", "WARNING"]


# pauses and deadlines


def test_a_pause_ends_after_its_time_or_when_its_event_is_set(sim: Simulation) -> None:
    async def main() -> None:
        event, began = asyncio.Event(), sim.now_s
        assert await pause(event, 20) is False
        assert sim.now_s - began == pytest.approx(20)
        asyncio.get_running_loop().call_later(3, event.set)
        assert await pause(event, 20) is True
        assert sim.now_s - began == pytest.approx(23)
        assert not event.is_set()

    run(sim, main)


def test_a_pause_whose_event_was_set_before_takes_no_time(sim: Simulation) -> None:
    async def main() -> None:
        event, began = asyncio.Event(), sim.now_s
        event.set()
        assert await pause(event, 20) is True
        assert sim.now_s == began
        assert await pause(event, 20) is False

    run(sim, main)


def test_a_deadline_is_a_time_of_the_loop(sim: Simulation) -> None:
    async def main() -> float:
        return deadline_after(1500) - asyncio.get_running_loop().time()

    assert run(sim, main) == pytest.approx(1.5)


# tasks


async def test_closing_cancels_all_tasks_and_waits_for_their_ends() -> None:
    tasks, ended = Tasks(), list[str]()

    async def work(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    started = [tasks.start(work(name), name) for name in "ab"]
    await asyncio.sleep(0)
    await tasks.close()

    assert sorted(ended) == ["a", "b"]
    assert all(task.cancelled() for task in started)
    assert [task.get_name() for task in started] == ["a", "b"]


async def test_closing_without_tasks_or_twice_does_nothing() -> None:
    tasks = Tasks()
    await tasks.close()
    task = tasks.start(forever(), "work")
    await tasks.close()
    await tasks.close()
    assert task.cancelled()


async def test_the_failure_of_a_task_is_logged_once_and_is_not_the_closers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = Tasks()
    tasks.start(unexpected(), "work")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await tasks.close()

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "ERROR",
        "background task ended: task='work'",
    )
    assert "ValueError: unexpected" in caplog.text


async def test_tasks_that_end_or_are_cancelled_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = Tasks()
    tasks.start(asyncio.sleep(0), "ends")
    tasks.start(forever(), "is cancelled")
    await asyncio.sleep(0)
    await tasks.close()

    assert caplog.records == []


def test_tasks_may_finish_within_a_time_and_the_others_are_cancelled(sim: Simulation) -> None:
    async def main() -> None:
        tasks, began = Tasks(), sim.now_s
        fast, slow = (tasks.start(asyncio.sleep(delay), "work") for delay in (1, 60))
        await tasks.finish(within_s=3)
        assert sim.now_s - began == pytest.approx(3)
        assert (fast.cancelled(), slow.cancelled()) == (False, True)

    run(sim, main)


def test_finishing_takes_no_longer_than_the_tasks(sim: Simulation) -> None:
    async def main() -> None:
        tasks, began = Tasks(), sim.now_s
        await tasks.finish(within_s=3)
        tasks.start(asyncio.sleep(1), "work")
        await tasks.finish(within_s=3)
        assert sim.now_s - began == pytest.approx(1)

    run(sim, main)


async def test_cancelling_waits_for_tasks_that_end_in_any_way() -> None:
    done = asyncio.create_task(asyncio.sleep(0))
    waiting = asyncio.create_task(forever())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    await cancel(done, waiting)
    await cancel()

    assert (done.cancelled(), waiting.cancelled()) == (False, True)


# several at the same time


@pytest.mark.parametrize("count", [1, 3])
def test_a_failure_is_raised_when_all_have_ended(sim: Simulation, count: int) -> None:
    async def work() -> float:
        async def wait() -> None:
            await asyncio.sleep(5)

        with pytest.raises(ValueError, match="unexpected"):
            await all_together(unexpected, *[wait] * (count - 1))
        return asyncio.get_running_loop().time()

    began = sim.now_s
    assert run(sim, work) - began == pytest.approx(5 if count > 1 else 0, abs=0.1)


def test_what_is_done_together_is_cancelled_together(sim: Simulation) -> None:
    async def work() -> list[str]:
        ended: list[str] = []

        async def wait() -> None:
            try:
                await forever()
            finally:
                await asyncio.sleep(1)
                ended.append("ended")

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await all_together(wait, wait)
        return ended

    assert run(sim, work) == ["ended", "ended"]


# in turn


async def test_each_step_is_done_in_turn_and_the_failure_of_one_is_raised_at_the_end() -> None:
    done: list[int] = []

    async def step(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)
        if number == 1:
            raise ConnectionClosed("the broker is away")

    with pytest.raises(ConnectionClosed, match="the broker is away"):
        await each_in_turn(*(partial(step, number) for number in range(4)))

    assert done == [0, 1, 2, 3]


async def test_a_cancelled_close_does_its_other_steps() -> None:
    done: list[int] = []

    async def step(number: int) -> None:
        if number == 1:
            await asyncio.Event().wait()
        done.append(number)

    closing = asyncio.create_task(each_in_turn(*(partial(step, number) for number in range(3))))
    while not done:
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert done == [0, 2]
