"""Builds the parts of one broker and connects them; starts none of them.

A part is constructed with the parts above it that it calls. A fact for a part further down goes
through `Listeners`: the line that adds the listener stands below both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from roquet.broker import component_configs
from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delay.delivery import DelayedDelivery
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.append_notifier import AppendNotifier
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.long_polls import LongPolls
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.ha.follower import MasterFollower
from roquet.broker.ha.promotion import RestartAs
from roquet.broker.ha.slave_sync import SlaveSync
from roquet.broker.handlers.admin.jobs import Jobs
from roquet.broker.handlers.members import MemberHandler
from roquet.broker.late_dispatch import LateDispatch
from roquet.broker.maintenance.cleaning import Cleaning
from roquet.broker.maintenance.drive_failure import DriveFailure
from roquet.broker.maintenance.registration import Registrar
from roquet.broker.metadata.filter_registry import FilterBitsOf, FilterRegistry
from roquet.broker.metrics.measurements import Measurements
from roquet.broker.tables import Tables
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.common.listeners import Listeners
from roquet.common.runtime import Runtime
from roquet.protocol.records.message import Permission
from roquet.replication.client import HaClient
from roquet.replication.log import VisibleLog
from roquet.replication.server import HaServer
from roquet.storage.files.disk import Disk, RealDisk
from roquet.storage.store import Store
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.peers import Peers, connections_allowed
from roquet.transport.slices import Slices


class Components:
    """The parts of one broker, and which of them tells which.

    Invariant: a master has an `ha_server`, a slave has a `follower`, no broker has both.

    :param restart_as: stops this broker and starts one with another configuration. A slave without
        it cannot be promoted.
    :param end: asks the process to end soon. Called when a sync of the store has failed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        disk: Disk | None,
        restart_as: RestartAs | None,
        end: Callable[[], None],
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.restart_as = restart_as
        loop_ms = _loop_clock_ms()
        self.channels = Channels()
        self.peers = Peers(config.peers, connections_allowed(config.peers))
        self.slices = Slices()
        self.jobs = Jobs()

        # messages and tables
        disk = RealDisk() if disk is None else disk
        self.clock = StampClock(runtime)
        self.tables = tables = Tables(config, runtime, disk)
        self.long_polls = LongPolls(loop_ms, config.pull_thread_pool_queue_capacity)
        self.store = store = Store(
            component_configs.store_config(config),
            self.clock.now_ms,
            disk,
            _filter_bits(config, tables.filters),
            self.long_polls.queues,
        )
        self.clock.follow(store.log)
        self.measurements = Measurements(
            config, store, tables.topics, tables.groups, self.clock.now_ms, loop_ms
        )

        # what follows an append
        self.write_gate = WriteGate()
        turn_ended = Listeners[[]]()
        self.turn = EndOfTurn(turn_ended, self.measurements.turn_took)
        self.ha_server = None if config.is_slave else _ha_server(config, store)
        self.ack_gate = AckGate(config, store.log, self.ha_server, loop_ms)
        if self.ha_server is not None:
            self.ha_server.acked.add(self.ack_gate.advance)
        self.append_notifier = AppendNotifier(
            store,
            self.long_polls,
            self.ack_gate,
            self.ha_server,
            syncs=config.store.is_sync_flush,
        )
        self.halves = HalfMessages(
            store,
            self.write_gate,
            tables.topics,
            tables.offsets,
            self.turn,
            self.clock,
            config.delay_levels,
            config.limits,
        )
        self.delayed = DelayedDelivery(
            store,
            self.write_gate,
            config.delay_levels,
            tables.delay_offsets,
            self.turn,
            self.clock,
            self.measurements.traffic.delivered,
        )
        # Keys are indexed before clients hear of the messages.
        turn_ended.add(store.end_turn, self.delayed.turn_ended, self.append_notifier.turn_ended)

        # replication on a slave
        self.follower: MasterFollower | None = None
        if config.is_slave:
            period_ms = config.replication.slave_sync_interval
            sync = SlaveSync(self.channels, store.log, tables, self.slices, period_ms)
            self.late_dispatch = LateDispatch(store, tables, self.halves, sync, self.turn.due)
            rules = component_configs.slave_rules(config)
            client = HaClient(store.log, self.late_dispatch.due, rules)
            self.follower = MasterFollower(client, sync, store, config.ha_master_address)
        else:
            self.late_dispatch = LateDispatch(store, tables, self.halves, None, self.turn.due)

        # clients and name servers
        self.members = MemberHandler(
            config,
            store,
            tables.topics,
            tables.groups,
            tables.consumers,
            tables.producers,
            tables.filters,
            runtime,
        )
        self.connection_closed = Listeners[[Connection]]()
        self.connection_closed.add(
            self.members.connection_closed, self.long_polls.connection_closed
        )
        self.registrar = Registrar(
            config,
            self.channels,
            tables.topics.to_table,
            tables.topics.set_ordered,
            self.slices,
            None if self.follower is None else self.follower.master_known,
        )
        tables.topics.changed.add(lambda _: self.registrar.soon())

        # old files, and a drive that fails
        files_gone = self.append_notifier.notify_slaves
        self.cleaning = Cleaning(
            store, self.write_gate, config.store, runtime, self.clock, files_gone, self.slices
        )
        self.checkpointing = asyncio.Lock()
        """Held while a checkpoint is made, so that two never run at once."""
        only_read = Listeners[[]]()
        only_read.add(partial(self.registrar.restrict, Permission.READ))
        if self.follower is not None:
            only_read.add(self.follower.stop_copying_log)
        action = config.store.sync_failure_action
        store.failed.add(
            self.write_gate.sync_failed, DriveFailure(action, self.ack_gate, end, only_read)
        )


def _loop_clock_ms() -> Callable[[], float]:
    """The running loop's clock in ms. The loop is kept: to ask for it is a system call."""
    loop = asyncio.get_running_loop()
    return lambda: loop.time() * 1000


def _filter_bits(config: BrokerConfig, filters: FilterRegistry) -> FilterBitsOf | None:
    if not config.filters.enable_calc_filter_bit_map:
        return None
    return FilterBitsOf(filters, config.filters.bloom)


def _ha_server(config: BrokerConfig, store: Store) -> HaServer:
    log = store.log if store.is_visible_at_once else VisibleLog(store)
    rules = component_configs.master_rules(config)
    return HaServer(log, rules, component_configs.admission(config))
