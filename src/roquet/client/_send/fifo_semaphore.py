"""A semaphore whose waiters enter in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class FifoSemaphore:
    """A semaphore: `async with`, or `enter` and `leave`, wait for one of `count_max` slots.

    asyncio's own semaphore scans all waiters whenever a slot becomes free. That is slow with
    10,000 sends at once.

    Invariant: at most `count_max` tasks are inside. One that no longer waits takes no memory.
    """

    def __init__(self, count_max: int) -> None:
        assert count_max > 0
        self._count_max = count_max
        self._free = count_max
        # Not a dict: finding the first key of one takes long after many first keys were removed.
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    @property
    def inside(self) -> int:
        """How many are inside."""
        return self._count_max - self._free

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    def enter_at_once(self) -> bool:
        """Take a slot if one is free, and nobody waits then; return whether it did."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def enter(self, deadline: float | None = None) -> None:
        """Wait for a slot.

        :param deadline: the time of the event loop until which this waits.
        :raises TimeoutError: no slot became free in time.
        """
        if self.enter_at_once():
            return
        loop = asyncio.get_running_loop()
        slot = loop.create_future()
        self._waiting[slot] = None
        timer = None if deadline is None else loop.call_at(deadline, _expire, slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self.leave()
            raise
        finally:
            self._waiting.pop(slot, None)
            if timer is not None:
                timer.cancel()

    def leave(self) -> None:
        """Give a slot back."""
        while self._waiting:
            slot, _ = self._waiting.popitem(last=False)
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1


def _expire(slot: asyncio.Future[None]) -> None:
    if not slot.done():
        slot.set_exception(TimeoutError())
