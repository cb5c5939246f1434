"""The offset file of a broadcasting member, although tasks are cancelled.

See docs/protocol/consuming.md#broadcasting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from roquet.client._consume.local_offsets import LocalOffsets
from roquet.common.runtime import Runtime, T
from roquet.protocol.records.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class SlowDrive(Runtime):
    """Its work waits to be let go; `at_once` is how much of it ever ran at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.running = self.at_once = 0

    async def blocking(self, work: Callable[[], T]) -> T:
        def slow() -> T:
            self.running += 1
            self.at_once = max(self.at_once, self.running)
            self.began.set()
            self.may_go_on.wait(10)
            try:
                return work()
            finally:
                self.running -= 1

        return await super().blocking(slow)


async def cancelled_while_it_saves(folder: Path, drive: SlowDrive) -> LocalOffsets:
    offsets = LocalOffsets(folder, "client", "G", drive)
    await offsets.commit(QUEUE, lambda: 1)
    cancelled = asyncio.create_task(offsets.persist())
    await asyncio.to_thread(drive.began.wait)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    return offsets


async def test_who_is_cancelled_while_it_saves_leaves_no_write_beside_the_next_one(
    tmp_path: Path,
) -> None:
    drive = SlowDrive()
    offsets = await cancelled_while_it_saves(tmp_path, drive)
    await offsets.commit(QUEUE, lambda: 2)
    last = asyncio.create_task(offsets.persist())
    await asyncio.sleep(0)
    drive.may_go_on.set()
    await last
    assert drive.at_once == 1
    again = LocalOffsets(tmp_path, "client", "G", Runtime())
    await again.open()
    assert await again.load(QUEUE) == 2


async def test_a_save_waits_for_the_write_that_is_under_way(tmp_path: Path) -> None:
    """Who leaves has saved all, also what somebody else began to write."""
    drive = SlowDrive()
    offsets = await cancelled_while_it_saves(tmp_path, drive)
    last = asyncio.create_task(offsets.persist())
    done, _ = await asyncio.wait([last], timeout=0.05)
    assert not done
    drive.may_go_on.set()
    await last
    assert (tmp_path / "client" / "G" / "offsets.json").exists()


async def test_a_queue_is_reset_although_its_file_cannot_be_written_now(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "client", "G", Runtime())
    await offsets.commit(QUEUE, lambda: 9)
    await offsets.persist()
    folder = tmp_path / "client" / "G"
    folder.rename(tmp_path / "aside")
    folder.write_text("in the way")
    await offsets.reset(QUEUE, 3)
    assert await offsets.load(QUEUE) == 3
    folder.unlink()
    await offsets.persist()
    again = LocalOffsets(tmp_path, "client", "G", Runtime())
    await again.open()
    assert await again.load(QUEUE) == 3
