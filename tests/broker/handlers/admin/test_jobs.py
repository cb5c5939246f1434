"""Work that goes on when the client that asked for it is gone."""

from __future__ import annotations

import asyncio

import pytest

from roquet.broker.handlers.admin import jobs as module
from roquet.broker.handlers.admin.jobs import Jobs
from roquet.errors import Refused


async def fail_after(event: asyncio.Event) -> None:
    await event.wait()
    raise OSError("the drive is full")


async def test_a_failure_is_told_to_those_who_wait_and_else_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs, event = Jobs(), asyncio.Event()
    waiting = [
        asyncio.create_task(jobs.run("deletion of topic T", lambda: fail_after(event)))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    event.set()
    assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [
        OSError
    ] * 2
    assert not caplog.messages
    event.clear()
    gone = asyncio.create_task(jobs.run("deletion of topic T", lambda: fail_after(event)))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    event.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(caplog.messages) == 1
    assert "job failed, ask for it again: job=deletion of topic T " in caplog.text


async def test_jobs_that_outlive_their_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOBS_MAX", 2)
    jobs, event = Jobs(), asyncio.Event()
    for number in range(2):
        gone = asyncio.create_task(jobs.run(f"{number}", lambda: fail_after(event)))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
    with pytest.raises(Refused, match="try again later"):
        await jobs.run("one more", lambda: fail_after(event))
    await jobs.close()
