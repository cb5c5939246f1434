"""The loop's clock is the one that the loop has, in seconds or whole milliseconds."""

from __future__ import annotations

import asyncio

import pytest

from roquet.common.loop_time import now_ms, now_s
from tests.simulation.simulation import Simulation


def test_virtual_time_passes_for_both_clocks() -> None:
    async def passing() -> tuple[float, int, float, int]:
        begin_s, begin_ms = now_s(), now_ms()
        await asyncio.sleep(2.5)
        return begin_s, begin_ms, now_s(), now_ms()

    with Simulation("loop time") as sim:
        begin_s, begin_ms, end_s, end_ms = sim.host("10.0.0.1").call(passing)

    assert end_s - begin_s == pytest.approx(2.5)
    assert end_ms - begin_ms == 2500


async def test_milliseconds_are_whole_ones_that_have_passed() -> None:
    before_ms, seconds, after_ms = now_ms(), now_s(), now_ms()

    assert before_ms <= int(seconds * 1000) <= after_ms
    assert isinstance(before_ms, int)


def test_without_a_loop_there_is_no_such_time() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        now_s()
