"""The background tasks of a broker: which loops a master, a slave or both run, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from roquet.broker import component_configs, periodic
from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delay.delivery import DelayedDelivery
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.append_notifier import AppendNotifier
from roquet.broker.delivery.long_polls import SWEEP_MS, LongPolls
from roquet.broker.delivery.queue_locks import LEASE_MS
from roquet.broker.handlers.members import MemberHandler
from roquet.broker.metrics.measurements import RATES_MS, Measurements
from roquet.broker.metrics.stats import Window
from roquet.broker.periodic import each
from roquet.broker.tables import Tables
from roquet.broker.transactions.check_back import CheckBack
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.common.runtime import Runtime
from roquet.common.steps import Steps
from roquet.storage.store import Store
from roquet.transport.slices import Slices

EXPIRY_SCAN_MS: Final = 10_000
DURABILITY_SCAN_MS: Final = 100
FILTERS_SAVED_MS: Final = 10_000
RETRY_MS: Final = 5_000

Loop = Coroutine[Any, Any, None]


def in_slices(slices: Slices, work: Callable[[], Steps[None]]) -> Callable[[], Awaitable[None]]:
    """Run `work` in slices of the event loop, so that clients are served meanwhile.

    For work over all queues, groups or clients of the broker.
    """
    return lambda: slices.run(work())


def storing(
    config: BrokerConfig,
    store: Store,
    runtime: Runtime,
    notifier: AppendNotifier,
    checkpointing: asyncio.Lock,
    slices: Slices,
) -> Iterator[Loop]:
    """Loops that flush, checkpoint and repair the store."""
    settings = config.store
    yield periodic.notice_failure(store)
    yield periodic.rebuild_queues(store)
    thorough_ms = settings.flush_consume_queue_thorough_interval
    yield periodic.checkpoint(store, runtime, thorough_ms, checkpointing, slices)
    if component_configs.syncs(config):
        yield periodic.flush_when_wanted(store, notifier.flush_wanted, notifier.shown, runtime)
    else:
        yield periodic.flush_now_and_then(store, runtime, settings)
    if store.config.pooled:
        yield each(settings.commit_interval_commit_log, notifier.commit)


def expiring(
    config: BrokerConfig,
    ack_gate: AckGate,
    long_polls: LongPolls,
    members: MemberHandler,
    tables: Tables,
    slices: Slices,
) -> Iterator[Loop]:
    """Loops that end what has timed out: held sends and pulls, silent clients, queue locks."""
    if ack_gate.waits:
        yield each(DURABILITY_SCAN_MS, ack_gate.expire)
    sweep_ms = SWEEP_MS if config.long_polling_enable else 1000
    yield each(sweep_ms, in_slices(slices, long_polls.sweep))
    yield each(EXPIRY_SCAN_MS, in_slices(slices, members.close_silent))
    yield each(LEASE_MS, in_slices(slices, tables.drop_expired_leases))


def saving(config: BrokerConfig, tables: Tables) -> Iterator[Loop]:
    """Loops that save the tables."""
    yield each(config.flush_consumer_offset_interval, tables.save_offsets)
    yield each(FILTERS_SAVED_MS, tables.save_filters)
    yield each(RETRY_MS, tables.retry)


def measuring(measurements: Measurements, slices: Slices) -> Iterator[Loop]:
    """Loops that sample rates and statistics."""
    yield each(RATES_MS, measurements.look_at_rates)
    for window in Window:
        yield each(window.period_ms, in_slices(slices, partial(measurements.look, window)))


def delivering(
    config: BrokerConfig,
    store: Store,
    tables: Tables,
    halves: HalfMessages,
    delayed: DelayedDelivery,
    runtime: Runtime,
) -> Iterator[Loop]:
    """Loops of a master that check open transactions and deliver delayed messages."""
    yield each(config.flush_consumer_offset_interval, halves.note_offsets)
    rules = component_configs.check_rules(config)
    checks = CheckBack(halves, tables.producers, rules, config.broker_name, runtime.steady_ms)
    yield each(rules.period_ms, checks.round)
    yield delayed.run()
    period_ms = config.store.flush_delay_offset_interval
    delay_offsets = tables.delay_offsets
    yield periodic.settle_delays(
        delay_offsets, tables.save_delay_offsets, store, runtime, period_ms
    )
