"""Coroutines for plain code, which may run where an event loop runs already: notebooks have one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `ask()` comes to, in an event loop of its own."""

    def asking() -> T:
        return asyncio.run(ask())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asking()
    with ThreadPoolExecutor(1, "roquet-asking") as apart:
        return apart.submit(asking).result()
