"""The event loops on which replication runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def whole(scene: Awaitable[None]) -> None:
        async def within_time() -> None:
            async with asyncio.timeout(20):
                await scene

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(within_time())

    return whole
