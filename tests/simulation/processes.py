"""Processes of client applications: how they start, and what they may leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from roquet.client._net.session_user import SessionUser
from roquet.errors import CallTimeout, ConnectionClosed
from tests.simulation.books import Books
from tests.simulation.simulation import Host, Simulation

C = TypeVar("C", bound=SessionUser)

START_S_MAX: Final = 60.0
PAUSE_S: Final = 1.0


async def started(books: Books, make: Callable[[], C]) -> C:
    """A client that has started, perhaps after others that reached no name server."""
    while True:
        client = make()
        try:
            return await books.within(START_S_MAX, "start", client.start())
        except (ConnectionClosed, CallTimeout):
            await asyncio.sleep(PAUSE_S)


def check_nothing_is_left(sim: Simulation, host: Host) -> None:
    """After the last client of a process was closed, it has no task and no connection of it."""
    process = host.process
    assert process is not None
    me = asyncio.current_task()
    tasks = [task.get_name() for task in sim.loop.pending_tasks(process) if task is not me]
    assert not tasks, f"tasks are left after close: {tasks}"
    ends = [end for end in sim.network.open_ends(process) if not end.is_closing()]
    assert not ends, f"{len(ends)} connections are left after close"


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Raises what went wrong in one of them."""
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
