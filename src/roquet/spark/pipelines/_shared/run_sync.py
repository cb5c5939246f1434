"""Runs coroutines from synchronous code, even below a running event loop, as in notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of `ask()`, run in a new event loop; in a thread if this one has a loop."""

    def asking() -> T:
        return asyncio.run(ask())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asking()
    with ThreadPoolExecutor(1, "roquet-asking") as apart:
        return apart.submit(asking).result()
