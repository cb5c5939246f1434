"""The time of a close: one for all that belongs to it, and a little for each request."""

from __future__ import annotations

import asyncio

from roquet.client._net.close_limit import AWAY_S, LEAST_S, close_limit, is_closing, limited_s
from tests.simulation.simulation import Simulation


def test_a_close_has_one_limit_also_in_the_tasks_that_it_begins(sim: Simulation) -> None:
    async def run() -> None:
        async def inner() -> float:
            with close_limit():
                return limited_s(3.0)

        assert (limited_s(9.0), limited_s(9.0, is_away=True), is_closing()) == (9.0, 9.0, False)
        with close_limit():
            assert (limited_s(9.0), limited_s(3.0), is_closing()) == (5.0, 3.0, True)
            assert limited_s(9.0, is_away=True) == AWAY_S
            await asyncio.sleep(2.5)
            assert await asyncio.create_task(inner()) == 2.5
            await asyncio.sleep(10)
            assert (limited_s(9.0), limited_s(0.5)) == (LEAST_S, 0.5)
        assert (limited_s(9.0), is_closing()) == (9.0, False)

    sim.host("10.0.0.1").call(run)


def test_what_a_close_waits_for_has_the_limit_of_that_close(sim: Simulation) -> None:
    async def run() -> None:
        with close_limit() as until_s:
            pass
        await asyncio.sleep(2)
        with close_limit(until_s) as same:
            assert (same, limited_s(9.0), is_closing()) == (until_s, 3.0, True)
            with close_limit(until_s + 7) as outer:
                assert (outer, limited_s(9.0)) == (until_s, 3.0)
        assert (limited_s(9.0), is_closing()) == (9.0, False)

    sim.host("10.0.0.1").call(run)
