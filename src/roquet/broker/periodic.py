"""The periodic loops, a few lines each; `background` says which of them a broker has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from roquet.broker.offsets.consumer_offsets import DelayOffsets
from roquet.common.limited_log import LimitedLog
from roquet.common.runtime import Runtime
from roquet.storage.store import Store
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 4096
RETRY_S: Final = 1.0
LOOK_MS: Final = 1000
NOTICE_S: Final = 0.2
MEND_LOOK_S: Final = 0.5
CHECKPOINT_BYTES: Final = 256 * 1024 * 1024
"""So much may have to be read again after a crash, with what is stored while a checkpoint is being made."""


async def each(period_ms: float, work: Callable[[], Awaitable[None] | None]) -> None:
    """Do `work` every `period_ms`, for ever; a failure is logged, once until it works again, and does not end it."""
    is_failing = False
    while True:
        await asyncio.sleep(period_ms / 1000)
        try:
            waiting = work()
            if waiting is not None:
                await waiting
        except Exception:
            if not is_failing:
                log.exception("periodic work %s fails, it is tried again", work)
            is_failing = True
        else:
            is_failing = False


async def flush_when_wanted(
    store: Store, wanted: asyncio.Event, flushed: Callable[[], None], runtime: Runtime
) -> None:
    """SYNC_FLUSH: one sync for all that was stored by then, again and again.

    See docs/storage/durability.md#when-the-log-is-synced.
    """
    told = LimitedLog(log)
    while store.failure is None:
        await wanted.wait()
        wanted.clear()
        if await flush(store, runtime, told):
            flushed()
        else:
            await asyncio.sleep(RETRY_S)
            wanted.set()


async def flush_now_and_then(
    store: Store, runtime: Runtime, period_ms: int, pages_min: int, thorough_ms: int
) -> None:
    """ASYNC_FLUSH: each period when enough pages came together, each thorough period whatever there is."""
    since_thorough_ms, told = 0, LimitedLog(log)
    while store.failure is None:
        await asyncio.sleep(period_ms / 1000)
        since_thorough_ms += period_ms
        is_thorough = since_thorough_ms >= thorough_ms
        if is_thorough:
            since_thorough_ms = 0
        waiting = store.log.end - store.log.flushed_to
        if waiting >= pages_min * PAGE_SIZE or (is_thorough and waiting):
            await flush(store, runtime, told)


async def flush(store: Store, runtime: Runtime, told: LimitedLog) -> bool:
    """Make the log as it is now durable, off the loop; tells whether that worked. A sync that fails is the last one.

    :param told: of whoever tries it again and again, where nothing could be tried.
    """
    end = store.log.end
    try:
        await runtime.blocking(store.log.sync_work(end))
    except OSError as error:
        _failed(store, "the log could not be flushed to disk", error, told)
        return False
    store.log.synced(end)
    return True


async def notice_failure(store: Store) -> None:
    """Whoever met a sync that failed, in whatever thread: the store is told of it on the loop."""
    while not store.take_failure():
        await asyncio.sleep(NOTICE_S)


async def mend(store: Store) -> None:
    """Make consume queues anew whose files were lost: a piece of the log at a time, others have their turns between."""
    while store.failure is None:
        await asyncio.sleep(0.001 if store.mend() else MEND_LOOK_S)


def _failed(store: Store, what: str, error: OSError, told: LimitedLog) -> None:
    """What failed is tried again, but for a sync: a second one could say that all is well when it is not."""
    if not store.take_failure():
        now_s = asyncio.get_running_loop().time()
        told.tell(logging.ERROR, what, now_s, "%s, it is tried again: error=%s", what, error)


async def checkpoint(
    store: Store, runtime: Runtime, period_ms: int, making: asyncio.Lock, slices: Slices
) -> None:
    """Each period, or when much was stored since, make log, queues and index durable, and note how far.

    :param making: held by whoever makes a checkpoint.
    """
    waited_ms, noted, told = 0, store.log.end, LimitedLog(log)
    while store.failure is None:
        await asyncio.sleep(min(period_ms, LOOK_MS) / 1000)
        waited_ms += min(period_ms, LOOK_MS)
        end = store.log.end
        if waited_ms < period_ms and end - noted < CHECKPOINT_BYTES:
            continue
        waited_ms, noted = 0, end
        try:
            async with making:
                for work in await slices.run(store.checkpoint_steps()):
                    await runtime.blocking(work)
        except OSError as error:
            _failed(store, "the checkpoint could not be written", error, told)
        else:
            store.log.synced(end)


async def settle_delays(
    delays: DelayOffsets,
    changed: Callable[[], None],
    store: Store,
    runtime: Runtime,
    period_ms: int,
) -> None:
    """Each period, let what was delivered by then be on disk, and only then be noted as delivered."""
    told = LimitedLog(log)
    while True:
        await asyncio.sleep(period_ms / 1000)
        table = delays.now()
        if (
            table != delays.to_table()
            and await flush(store, runtime, told)
            and delays.settle(table)
        ):
            changed()
