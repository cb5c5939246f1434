"""The background tasks of a broker: which loops a master, a slave or both run, and how often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from roquet.broker import component_configs, periodic
from roquet.broker.components import Components
from roquet.broker.delivery.long_polls import SWEEP_MS
from roquet.broker.delivery.queue_locks import LEASE_MS
from roquet.broker.metrics.measurements import RATES_MS
from roquet.broker.metrics.stats import Window
from roquet.broker.periodic import each
from roquet.broker.transactions.check_back import CheckBack
from roquet.common.steps import Steps

EXPIRY_SCAN_MS: Final = 10_000
DURABILITY_SCAN_MS: Final = 100
KEEP_UP_MS: Final = 200
FILTERS_SAVED_MS: Final = 10_000
RETRY_MS: Final = 5_000

Loop = Coroutine[Any, Any, None]


def loops(parts: Components) -> Iterator[Loop]:
    """The background loops of this broker. Each runs until it is cancelled."""
    yield parts.registrar.run()
    yield parts.peers.watch.run()
    yield from _storing(parts)
    yield from _answering(parts)
    yield from _remembering(parts)
    yield from _as_slave(parts) if parts.config.is_slave else _as_master(parts)
    yield each(RATES_MS, parts.measurements.look_at_rates)
    for window in Window:
        yield each(window.period_ms, in_slices(parts, partial(parts.measurements.look, window)))


def in_slices(parts: Components, work: Callable[[], Steps[None]]) -> Callable[[], Awaitable[None]]:
    """Run `work` in slices of the event loop, so that clients are served meanwhile.

    For work over all queues, groups or clients of the broker.
    """
    return lambda: parts.slices.run(work())


def _storing(parts: Components) -> Iterator[Loop]:
    """Loops that flush, checkpoint, repair and clean the store."""
    store = parts.store
    runtime = parts.runtime
    settings = parts.config.store
    yield periodic.notice_failure(store)
    yield periodic.mend(store)
    yield periodic.checkpoint(
        store,
        runtime,
        settings.flush_consume_queue_thorough_interval,
        parts.checkpointing,
        parts.slices,
    )
    if component_configs.syncs(parts.config):
        yield periodic.flush_when_wanted(
            store, parts.append_notifier.flush_wanted, parts.append_notifier.shown, runtime
        )
    else:
        yield periodic.flush_now_and_then(
            store,
            runtime,
            settings.flush_interval_commit_log,
            settings.flush_commit_log_least_pages,
            settings.flush_commit_log_thorough_interval,
        )
    if store.config.pooled:
        yield each(settings.commit_interval_commit_log, parts.append_notifier.commit)
    yield parts.cleaning.watch()
    yield parts.cleaning.run()
    yield each(KEEP_UP_MS, in_slices(parts, parts.keep_up))


def _answering(parts: Components) -> Iterator[Loop]:
    """Loops that end what has timed out: held sends and pulls, silent clients, queue locks."""
    if parts.ack_gate.waits:
        yield each(DURABILITY_SCAN_MS, parts.ack_gate.expire)
    yield each(
        SWEEP_MS if parts.config.long_polling_enable else 1000,
        in_slices(parts, parts.long_polls.sweep),
    )
    yield each(EXPIRY_SCAN_MS, in_slices(parts, parts.members.close_silent))
    yield each(LEASE_MS, in_slices(parts, parts.tables.drop_expired_leases))


def _remembering(parts: Components) -> Iterator[Loop]:
    """Loops that save the tables."""
    yield each(parts.config.flush_consumer_offset_interval, parts.tables.save_progress)
    yield each(FILTERS_SAVED_MS, parts.tables.save_filters)
    yield each(RETRY_MS, parts.tables.retry)


def _as_master(parts: Components) -> Iterator[Loop]:
    config = parts.config
    tables = parts.tables
    runtime = parts.runtime
    yield each(config.flush_consumer_offset_interval, parts.halves.note_progress)
    rules = component_configs.check_rules(config)
    checks = CheckBack(parts.halves, tables.producers, rules, config.broker_name, runtime.steady_ms)
    yield each(rules.period_ms, checks.round)
    yield parts.delayed.run()
    period_ms = config.store.flush_delay_offset_interval
    yield periodic.settle_delays(
        tables.delays, tables.delays_file.changed, parts.store, runtime, period_ms
    )


def _as_slave(parts: Components) -> Iterator[Loop]:
    yield parts.slave_sync.run()
