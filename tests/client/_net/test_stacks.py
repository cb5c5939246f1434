"""The stacks that an administrator sees."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roquet.client._net import stacks as module
from roquet.client._net.stacks import stacks


async def inner(release: asyncio.Event) -> None:
    await release.wait()


async def outer(release: asyncio.Event) -> None:
    await inner(release)


async def test_a_task_is_shown_with_all_its_calls_the_newest_first() -> None:
    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(outer(release), name="consume orders")
        await asyncio.sleep(0)
        lines = [line for line in stacks().splitlines() if line.startswith("task consume orders")]
        release.set()
    assert "TID: " in lines[0]
    assert lines[0].endswith("STATE: WAITING")
    assert [line.split()[3].partition("(")[0] for line in lines[1:]] == ["wait", "inner", "outer"]
    assert __file__ in lines[2]


async def test_a_thread_is_shown_by_its_name() -> None:
    release, running = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        release.wait()

    thread = threading.Thread(target=work, name="a worker")
    thread.start()
    running.wait()
    shown = stacks()
    release.set()
    thread.join()
    assert any(line.startswith("a worker") and " work(" in line for line in shown.splitlines())


async def test_of_very_many_tasks_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASKS_MAX", 2)
    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(inner(release))
        shown = stacks()
        release.set()
    assert shown.endswith("4 more tasks\n"), "these five and this test's own"
