"""The event loop's clock: it never goes back, and in simulations it is virtual."""

from __future__ import annotations

import asyncio


def now_s() -> float:
    return asyncio.get_running_loop().time()


def now_ms() -> int:
    return int(now_s() * 1000)
