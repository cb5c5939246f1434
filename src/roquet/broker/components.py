"""Builds and connects the parts of one broker; starts none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.broker import component_configs
from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import SyncFailureAction
from roquet.broker.delay.delivery import DelayedDelivery
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.append_notifier import AppendNotifier
from roquet.broker.delivery.end_of_turn import EndOfTurn, ThrottledWork
from roquet.broker.delivery.long_polls import LongPolls
from roquet.broker.ha.promotion import RestartAs
from roquet.broker.ha.slave_sync import SlaveSync
from roquet.broker.handlers.admin.jobs import Jobs
from roquet.broker.handlers.members import MemberHandler
from roquet.broker.maintenance.cleaning import Cleaning
from roquet.broker.maintenance.drive_failure import DriveFailure
from roquet.broker.maintenance.registration import Registrar
from roquet.broker.metadata.filter_data import FilterBitsOf
from roquet.broker.metadata.found_topics import add_found_topics
from roquet.broker.metrics.measurements import Measurements
from roquet.broker.offsets.clamp import clamp_offsets
from roquet.broker.tables import Tables
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.common.runtime import Runtime
from roquet.common.steps import Steps
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

DISPATCH_PAUSE_S: Final = 0.005
"""The shortest time between two dispatches on a slave. Records that arrive meanwhile are dispatched
together: dispatching a hundred costs little more than dispatching one."""


class Components:
    """The parts of one broker, each constructed with the other parts that it uses.

    Invariant: a master has an `ha_server`, a slave has an `ha_client`, no broker has both.

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
        end: Callable[[], None] = lambda: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.clock = StampClock(runtime, lambda: self.store.log.end)
        now_ms = self.clock.now_ms

        def clock_ms() -> float:
            return loop.time() * 1000

        self.config = config
        self.runtime = runtime
        self.restart_as = restart_as
        self.channels = Channels()
        self.peers = Peers(config.peers, connections_allowed(config.peers))
        self.slices = Slices()
        disk = RealDisk() if disk is None else disk
        self.tables = Tables(config, runtime, disk, lambda: self.registrar.soon())
        self.long_polls = LongPolls(clock_ms, config.pull_thread_pool_queue_capacity)
        self.store = Store(
            component_configs.store_config(config),
            now_ms,
            disk,
            self._filter_bits(),
            self.long_polls.queues,
        )
        self.measurements = Measurements(
            self.store,
            self.tables.metadata,
            config.broker_cluster_name,
            now_ms,
            clock_ms,
            detailed=config.enable_detail_stat,
            limits=config.limits,
        )
        self.turn = EndOfTurn(self._end_turn, self.measurements.turn_took)
        self.dispatches = ThrottledWork(self._dispatch, DISPATCH_PAUSE_S)
        self._lacked_entries = False
        self.ha_server = None if config.is_slave else self._make_ha_server()
        self.ha_client = self._make_ha_client() if config.is_slave else None
        self.ack_gate = AckGate(
            component_configs.durability_config(config),
            lambda: self.store.log.flushed_to,
            lambda: self.store.log.end,
            self.ha_server,
            clock_ms,
        )
        self.append_notifier = AppendNotifier(
            self.store,
            self.long_polls,
            self.ack_gate,
            self.ha_server,
            syncs=component_configs.syncs(config),
        )
        self.halves = HalfMessages(
            self.store,
            self.tables.metadata,
            self.tables.progress,
            self.turn,
            self.clock,
            config.delay_levels,
            config.limits,
        )
        delivered = self.measurements.traffic.delivered
        self.delayed = DelayedDelivery(
            self.store, config.delay_levels, self.tables.delays, self.turn, self.clock, delivered
        )
        self.cleaning = self._make_cleaning()
        self.checkpointing = asyncio.Lock()
        """Held while a checkpoint is made, so that two never run at once."""
        self.jobs = Jobs()
        self.members = self._make_members()
        self._queue_count = 0
        self.slave_sync = self._make_slave_sync()
        self.registrar = self._make_registrar()
        then = {SyncFailureAction.STOP: end, SyncFailureAction.READ_ONLY: self._only_read}
        self.store.on_failure = DriveFailure(config.store.sync_failure_action, self.ack_gate, then)

    def _filter_bits(self) -> FilterBitsOf | None:
        filters = self.config.filters
        return (
            FilterBitsOf(self.tables.filters, filters.bloom)
            if filters.enable_calc_filter_bit_map
            else None
        )

    def _make_ha_server(self) -> HaServer:
        store = self.store
        log = store.log if store.shows_at_once else VisibleLog(store.log, lambda: store.shown_to)
        rules = component_configs.master_rules(self.config)
        admission = component_configs.admission(self.config)
        return HaServer(log, lambda: self.ack_gate.advance(), rules, admission)

    def _make_ha_client(self) -> HaClient:
        return HaClient(
            self.store.log, self.dispatches.due, component_configs.slave_rules(self.config)
        )

    def _make_cleaning(self) -> Cleaning:
        settings = self.config.store
        return Cleaning(
            self.store,
            settings.retention,
            self.runtime,
            self.clock,
            self.append_notifier.slaves_look,
            self.slices,
            period_ms=settings.clean_resource_interval,
            log_pause_ms=settings.delete_commit_log_files_interval,
            queue_pause_ms=settings.delete_consume_queue_files_interval,
        )

    def _make_members(self) -> MemberHandler:
        config = self.config
        tables = self.tables
        store = self.store
        return MemberHandler(
            tables.consumers,
            tables.producers,
            tables.metadata,
            tables.filters,
            self.runtime.now_ms,
            self.runtime.steady_ms,
            lambda: store.newest_ms,
            filter_by_properties=config.filters.enable_property_filter,
            notify=config.notify_consumer_ids_changed_enable,
            limits=config.limits,
        )

    def _make_slave_sync(self) -> SlaveSync:
        tables = self.tables
        return SlaveSync(
            self.channels,
            lambda: self.store.log.end,
            lambda: self.store.log.flushed_to,
            tables.metadata,
            tables.progress,
            tables.delays,
            tables.progress_file.changed,
            tables.delays_file.changed,
            self.slices,
            self.config.replication.slave_sync_interval,
        )

    def _make_registrar(self) -> Registrar:
        config = self.config
        return Registrar(
            self.channels,
            config.name_servers,
            component_configs.identity(config),
            self.tables.topics.to_table,
            period_ms=config.register_period_ms,
            timeout_ms=config.register_broker_timeout_mills,
            compressed=config.compressed_register,
            permission=config.broker_permission,
            master_known=self._master_known if config.is_slave else None,
            order_known=self.tables.metadata.set_ordered,
            slices=self.slices,
        )

    # calls from one part to the others

    def connection_closed(self, connection: Connection) -> None:
        """Forget the members and held pulls of a connection that was closed."""
        self.members.connection_closed(connection)
        self.long_polls.connection_closed(connection)

    def _only_read(self) -> None:
        """Serve reads only, after a sync of the store has failed.

        Registers all topics as read-only, so that producers choose another broker. A slave stops
        copying the log.
        """
        self.registrar.restrict(Permission.READ)
        if self.ha_client is not None:
            self.ha_client.set_master(None)

    def _end_turn(self) -> None:
        """Finish an event-loop turn that appended records: each step runs once per turn.

        Writes the index, schedules delayed messages, then notifies flush, slaves and held pulls.
        """
        self.store.end_turn()
        self.delayed.turn_ended()
        self.append_notifier.turn_ended()

    def read_queues(self) -> None:
        """Complete the tables from the consume queues: missing topics, offsets, open transactions.

        Adds topics that have messages and are missing in the topic table. A master also clamps
        consumer offsets to the ends of their queues and rebuilds the table of open transactions.
        Called again when queue entries that could not be written at the start have been written:
        until then the ends of the queues are not known.
        """
        self._lacked_entries = self.store.dispatch.is_held_up
        if self.tables.may_lack_topics:
            add_found_topics(
                self.store, self.tables.metadata, stored_after=self.slave_sync.topics_to
            )
        if self.config.is_slave:
            return
        clamp_offsets(self.tables.progress, self.store)
        self.halves.load()

    def _dispatch(self) -> None:
        """Dispatch records that are in the log but not yet in their queues.

        On a slave: after the master's bytes were appended and reported. On any broker: when the
        drive may have room again for queue entries that could not be written before.
        """
        self.store.replicated()
        if self._lacked_entries and not self.store.dispatch.is_held_up:
            self.read_queues()
        self.turn.due()
        queues = self.store.queues
        if len(queues) != self._queue_count:
            self._queue_count = len(queues)
            if any(topic not in self.tables.topics.topics for topic in queues.topics):
                self.slave_sync.soon()

    def keep_up(self) -> Steps[None]:
        """Write new keys to the index, and dispatch records whose entries could not be written."""
        if self.store.dispatch.behind:
            self.dispatches.due()
        yield from self.store.flush_index_steps()

    def _master_known(self, ha_address: str | None, address: str | None) -> None:
        """Follow the master that a name server named, unless `haMasterAddress` is configured.

        See docs/storage/replication.md#how-a-slave-finds-its-master.
        """
        self.slave_sync.master = address
        if self.ha_client is None or self.store.failure is not None:
            return
        if self.config.ha_master_address is None and ha_address is not None:
            self.ha_client.set_master(ha_address)
