"""Those who wait for a slot enter in the order in which they came, and no slot is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from roquet.client._send.fifo_semaphore import FifoSemaphore
from tests.simulation.simulation import Simulation


class Crowd:
    """Tasks that want a slot; each holds it until it is told to leave."""

    def __init__(self, slots: int) -> None:
        self.semaphore = FifoSemaphore(slots)
        self.entered: list[int] = []
        self.inside: set[int] = set()
        self._leave: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, *numbers: int) -> None:
        for number in numbers:
            self._leave[number] = asyncio.Event()
            self._tasks[number] = asyncio.create_task(self._visit(number))
        await _turns()

    async def _visit(self, number: int) -> None:
        async with self.semaphore:
            self.entered.append(number)
            self.inside.add(number)
            try:
                await self._leave[number].wait()
            finally:
                self.inside.discard(number)

    async def leave(self, *numbers: int) -> None:
        for number in numbers:
            self._leave[number].set()
        await _turns()

    async def cancel(self, *numbers: int) -> None:
        for number in numbers:
            self._tasks[number].cancel()
        await _turns()

    async def emptied(self) -> None:
        """Wait until all have left that were told to."""
        await asyncio.wait(self._tasks.values())


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_there_are_as_many_inside_as_there_are_slots() -> None:
    crowd = Crowd(2)
    await crowd.come(0, 1, 2, 3)
    assert crowd.inside == {0, 1}
    await crowd.leave(1)
    assert crowd.inside == {0, 2}
    await crowd.leave(0, 2)
    assert crowd.inside == {3}
    await crowd.leave(3)
    assert crowd.inside == set()


async def test_those_who_wait_enter_in_the_order_in_which_they_came() -> None:
    crowd = Crowd(1)
    await crowd.come(*range(6))
    for number in range(6):
        await crowd.leave(number)
    assert crowd.entered == [0, 1, 2, 3, 4, 5]


async def test_one_who_comes_while_others_wait_does_not_enter_before_them() -> None:
    crowd = Crowd(1)
    await crowd.come(0, 1)
    await crowd.leave(0)
    await crowd.come(2)
    assert (crowd.entered, crowd.inside) == ([0, 1], {1})
    await crowd.leave(1, 2)


async def test_one_who_is_cancelled_while_it_waits_takes_no_slot() -> None:
    crowd = Crowd(1)
    await crowd.come(0, 1, 2)
    await crowd.cancel(1)
    await crowd.leave(0)
    assert (crowd.entered, crowd.inside) == ([0, 2], {2})
    await crowd.leave(2)


async def test_one_who_is_cancelled_with_a_slot_gives_it_back() -> None:
    crowd = Crowd(1)
    await crowd.come(0, 1)
    await crowd.cancel(0)
    assert crowd.inside == {1}
    await crowd.leave(1)


async def test_a_slot_that_is_given_to_one_who_is_cancelled_goes_to_the_next() -> None:
    semaphore, entered = FifoSemaphore(1), list[int]()

    async def visit(number: int) -> None:
        async with semaphore:
            entered.append(number)

    async with semaphore:
        first, second = (asyncio.create_task(visit(number)) for number in (1, 2))
        await _turns()
    first.cancel()  # before it runs: the slot is its own already
    await asyncio.wait([first, second], timeout=1)

    assert entered == [2]
    assert first.cancelled()


async def test_one_whose_time_is_over_takes_no_slot() -> None:
    semaphore = FifoSemaphore(1)
    await semaphore.enter()
    now = asyncio.get_running_loop().time()
    late = asyncio.create_task(semaphore.enter(now + 0.01))
    patient = asyncio.create_task(semaphore.enter(now + 60))
    await asyncio.wait([late])
    assert isinstance(late.exception(), TimeoutError)
    semaphore.leave()
    await patient
    semaphore.leave()
    async with asyncio.timeout(1):
        await semaphore.enter(now)  # one is free: it need not wait


@pytest.mark.parametrize("slots", [1, 3])
def test_after_any_comings_goings_and_cancellations_all_slots_are_free(
    sim: Simulation, seed: int, slots: int
) -> None:
    chance = random.Random(seed)

    async def life() -> set[int]:
        crowd = Crowd(slots)
        for number in range(60):
            await crowd.come(number)
            assert len(crowd.inside) <= slots
            for each in sorted(crowd.inside):
                if chance.random() < 0.5:
                    await (crowd.leave if chance.random() < 0.7 else crowd.cancel)(each)
            if chance.random() < 0.3:
                await crowd.cancel(chance.randrange(number + 1))
        await crowd.leave(*range(60))
        await crowd.emptied()
        newcomers = range(100, 100 + slots + 1)
        await crowd.come(*newcomers)
        found = set(crowd.inside)
        await crowd.leave(*newcomers)
        return found

    assert sim.host("10.0.0.1").call(life) == {100 + number for number in range(slots)}


async def test_an_error_inside_gives_the_slot_back() -> None:
    semaphore = FifoSemaphore(1)
    with pytest.raises(ValueError, match="wrong"):
        async with semaphore:
            raise ValueError("wrong")
    async with asyncio.timeout(1), semaphore:
        pass
