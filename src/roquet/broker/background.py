"""The background loops of a broker: which run, how often, and those of the store's files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from roquet.broker import component_configs
from roquet.broker.components import Components
from roquet.broker.config.store import StoreSettings
from roquet.broker.delivery.long_polls import SWEEP_MS
from roquet.broker.delivery.queue_locks import LEASE_MS
from roquet.broker.late_dispatch import KEEP_UP_MS
from roquet.broker.metrics.measurements import RATES_MS
from roquet.broker.metrics.stats import Window
from roquet.broker.tables import Tables
from roquet.broker.transactions.check_back import CheckBack
from roquet.common.failure_streak import FailureStreak
from roquet.common.limited_log import LimitedLog
from roquet.common.runtime import Runtime
from roquet.common.steps import Steps
from roquet.storage.store import Store
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

EXPIRY_SCAN_MS: Final = 10_000
DURABILITY_SCAN_MS: Final = 100
FILTERS_SAVED_MS: Final = 10_000
RETRY_MS: Final = 5_000
PAGE_SIZE: Final = 4096
"""Bytes of a page, the unit of `flushCommitLogLeastPages` (Apache: `OS_PAGE_SIZE`)."""
RETRY_S: Final = 1.0
LOOK_MS: Final = 1000
NOTICE_S: Final = 0.2
REBUILD_LOOK_S: Final = 0.5
CHECKPOINT_BYTES: Final = 256 * 1024 * 1024
"""A checkpoint is made early when the log has grown by this many bytes. It bounds what recovery
reads after a crash: these bytes, and those stored while the checkpoint was being made."""


Loop = Coroutine[Any, Any, None]


def loops(parts: Components) -> Iterator[Loop]:
    """The background loops of a broker. Each runs until it is cancelled."""
    config = parts.config
    store = parts.store
    tables = parts.tables
    slices = parts.slices
    yield parts.registrar.run()
    yield parts.peers.watch.run()
    yield from _storing(parts)
    yield parts.cleaning.watch()
    yield parts.cleaning.run()
    yield each(KEEP_UP_MS, in_slices(slices, parts.late_dispatch.keep_up))
    if parts.ack_gate.waits:
        yield each(DURABILITY_SCAN_MS, parts.ack_gate.expire)
    sweep_ms = SWEEP_MS if config.long_polling_enable else 1000
    yield each(sweep_ms, in_slices(slices, parts.long_polls.sweep))
    yield each(EXPIRY_SCAN_MS, in_slices(slices, parts.members.close_silent))
    yield each(LEASE_MS, in_slices(slices, tables.drop_expired_leases))
    yield each(config.flush_consumer_offset_interval, tables.save_offsets)
    yield each(FILTERS_SAVED_MS, tables.save_filters)
    yield each(RETRY_MS, tables.retry)
    if parts.follower is not None:
        yield parts.follower.sync.run()
    else:
        yield each(config.flush_consumer_offset_interval, parts.halves.note_offsets)
        rules = component_configs.check_rules(config)
        checks = CheckBack(
            parts.halves,
            tables.producers,
            rules,
            config.broker_name,
            lambda: parts.clock.steady_ms(),  # the clock of the half messages' times
        )
        yield each(rules.period_ms, checks.round)
        yield parts.delayed.run()
        delay_offsets_ms = config.store.flush_delay_offset_interval
        yield settle_delays(tables, store, parts.runtime, delay_offsets_ms)
    yield each(RATES_MS, parts.measurements.sample_rates)
    for window in Window:
        sample = partial(parts.measurements.sample, window)
        yield each(window.period_ms, in_slices(slices, sample))


def _storing(parts: Components) -> Iterator[Loop]:
    """Loops that flush, checkpoint and rebuild files of the store."""
    store = parts.store
    runtime = parts.runtime
    settings = parts.config.store
    notifier = parts.append_notifier
    yield notice_failure(store)
    yield rebuild_queues(store)
    thorough_ms = settings.flush_consume_queue_thorough_interval
    yield checkpoint(store, runtime, thorough_ms, parts.checkpointing, parts.slices)
    if settings.is_sync_flush:
        yield flush_when_wanted(store, notifier.flush_wanted, notifier.visible_end_grew, runtime)
    else:
        yield flush_now_and_then(store, runtime, settings)
    if store.config.pooled:
        yield each(settings.commit_interval_commit_log, notifier.commit)


def in_slices(slices: Slices, work: Callable[[], Steps[None]]) -> Callable[[], Awaitable[None]]:
    """Run `work` in slices of the event loop, so that clients are served meanwhile.

    For work over all queues, groups or clients of the broker.
    """
    return lambda: slices.run(work())


async def each(period_ms: float, work: Callable[[], Awaitable[None] | None]) -> None:
    """Run `work` every `period_ms` until cancelled.

    An exception does not end the loop. It is logged once, and again only after `work` has succeeded
    in between.
    """
    streak = FailureStreak()
    while True:
        await asyncio.sleep(period_ms / 1000)
        try:
            waiting = work()
            if waiting is not None:
                await waiting
        except Exception:
            if streak.failed():
                log.exception("periodic work failed, will be retried: work=%s", work)
        else:
            streak.ended()


async def flush_when_wanted(
    store: Store, wanted: asyncio.Event, flushed: Callable[[], None], runtime: Runtime
) -> None:
    """Sync the log each time that sends wait for it (SYNC_FLUSH); one sync serves all of them.

    See docs/storage/durability.md#when-the-log-is-synced.
    """
    limited_log = LimitedLog(log)
    while store.failure is None:
        await wanted.wait()
        wanted.clear()
        if await flush(store, runtime, limited_log):
            flushed()
        else:
            await asyncio.sleep(RETRY_S)
            wanted.set()


async def flush_now_and_then(store: Store, runtime: Runtime, settings: StoreSettings) -> None:
    """Sync the log now and then (ASYNC_FLUSH).

    It is synced after a period in which enough pages were written, and after a longer time even if
    fewer pages wait.
    """
    period_ms = settings.flush_interval_commit_log
    thorough_ms = settings.flush_commit_log_thorough_interval
    bytes_min = settings.flush_commit_log_least_pages * PAGE_SIZE
    since_thorough_ms = 0
    limited_log = LimitedLog(log)
    while store.failure is None:
        await asyncio.sleep(period_ms / 1000)
        since_thorough_ms += period_ms
        is_thorough = since_thorough_ms >= thorough_ms
        if is_thorough:
            since_thorough_ms = 0
        waiting = store.log.end - store.log.flushed_to
        if waiting >= bytes_min or (is_thorough and waiting):
            await flush(store, runtime, limited_log)


async def flush(store: Store, runtime: Runtime, limited_log: LimitedLog) -> bool:
    """Sync the log up to its present end, in a thread. Returns whether it is durable now.

    After a sync has failed, no further sync is tried (decision 0025).

    :param limited_log: logs an error that happened before the sync; the caller retries then.
    """
    end = store.log.end
    try:
        await runtime.blocking(store.log.sync_work(end))
    except OSError as error:
        _failed(store, "commit log not flushed", error, limited_log)
        return False
    store.log.synced(end)
    return True


async def notice_failure(store: Store) -> None:
    """Poll for a sync that failed in any thread, and stop the store on the event loop.

    Threads may not touch the store; they only record the failure.
    """
    while not store.take_failure():
        await asyncio.sleep(NOTICE_S)


async def rebuild_queues(store: Store) -> None:
    """Rebuild consume queues whose files were lost.

    Each step reads one piece of the log. The event loop serves clients between two steps.
    """
    while store.failure is None:
        await asyncio.sleep(0.001 if store.rebuild_queues() else REBUILD_LOOK_S)


def _failed(store: Store, event: str, error: OSError, limited_log: LimitedLog) -> None:
    """Stop the store if a sync has failed; otherwise log the error, the caller retries.

    A sync is not retried: Linux marks the pages of a failed write-back clean, so the next sync
    succeeds although the bytes are lost.
    """
    if not store.take_failure():
        message = "%s, will be retried: error=%s"
        limited_log.tell(logging.ERROR, event, message, event, error)


async def checkpoint(
    store: Store, runtime: Runtime, period_ms: int, making: asyncio.Lock, slices: Slices
) -> None:
    """Make checkpoints: sync log, queues and index, and save up to where they are durable.

    Runs each `period_ms`, or earlier when the log has grown by `CHECKPOINT_BYTES`.

    :param making: held while a checkpoint is made, so that two never run at once.
    """
    waited_ms = 0
    last_end = store.log.end
    limited_log = LimitedLog(log)
    while store.failure is None:
        await asyncio.sleep(min(period_ms, LOOK_MS) / 1000)
        waited_ms += min(period_ms, LOOK_MS)
        end = store.log.end
        if waited_ms < period_ms and end - last_end < CHECKPOINT_BYTES:
            continue
        waited_ms = 0
        last_end = end
        try:
            async with making:
                for work in await slices.run(store.checkpoint_steps()):
                    await runtime.blocking(work)
        except OSError as error:
            _failed(store, "checkpoint not written", error, limited_log)
        else:
            store.log.synced(end)


async def settle_delays(tables: Tables, store: Store, runtime: Runtime, period_ms: int) -> None:
    """Save the offsets of delayed messages each period, after the delivered messages are durable.

    Saved earlier, a crash could lose the delivered copies, and they would not be delivered again.
    """
    delays = tables.delay_offsets
    limited_log = LimitedLog(log)
    while True:
        await asyncio.sleep(period_ms / 1000)
        table = delays.now()
        if (
            table != delays.to_table()
            and await flush(store, runtime, limited_log)
            and delays.settle(table)
        ):
            tables.save_delay_offsets()
