"""Builds a broker, wires its parts, starts and stops it; holds no logic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from roquet.broker import part_configs, state_files, tasks
from roquet.broker.arrivals import SWEEP_MS, Arrivals
from roquet.broker.catalogue import Catalogue
from roquet.broker.check_back import CheckBack
from roquet.broker.cleaning import Cleaning
from roquet.broker.config import MASTER_ID, BrokerConfig
from roquet.broker.delayed import DelayedMessages
from roquet.broker.durability import Durability
from roquet.broker.filter_data import FilterRegistry, NotedFilters
from roquet.broker.groups import GroupRegistry
from roquet.broker.half_messages import HalfMessages
from roquet.broker.handlers.admin_broker import BrokerAdmin
from roquet.broker.handlers.admin_groups import GroupAdmin
from roquet.broker.handlers.admin_ha import HaAdmin
from roquet.broker.handlers.admin_progress import ProgressAdmin
from roquet.broker.handlers.admin_stats import StatsAdmin
from roquet.broker.handlers.admin_store import StoreAdmin
from roquet.broker.handlers.admin_topics import TopicAdmin
from roquet.broker.handlers.locks import LockRequests
from roquet.broker.handlers.members import MemberRequests
from roquet.broker.handlers.progress import ProgressRequests
from roquet.broker.handlers.pull import Pulls
from roquet.broker.handlers.query import QueryRequests
from roquet.broker.handlers.relays import Relays
from roquet.broker.handlers.replies import Replies
from roquet.broker.handlers.send import Sends
from roquet.broker.handlers.send_back import SendBacks
from roquet.broker.handlers.transactions import TransactionRequests
from roquet.broker.lost_tail import set_back_progress
from roquet.broker.measurements import RATES_MS, Measurements
from roquet.broker.members import Consumers, Producers
from roquet.broker.offset_moves import OffsetMoves
from roquet.broker.part_configs import syncs
from roquet.broker.peers import Life, addresses_of, life_of
from roquet.broker.positions import Positions
from roquet.broker.progress import ConsumerProgress, DelayProgress
from roquet.broker.promotion import Become, Promotion
from roquet.broker.queue_locks import LEASE_MS, LeaseTable
from roquet.broker.read_balance import ReadBalance
from roquet.broker.registration import Registrar
from roquet.broker.runtime_info import RuntimeInfo
from roquet.broker.slave_sync import SlaveSync
from roquet.broker.state_files import StateFile, Then
from roquet.broker.stats import Window
from roquet.broker.topics import TopicRegistry
from roquet.broker.turn import Pace, Turn
from roquet.errors import ConfigError
from roquet.protocol.bodies import DataVersion, DelayOffsetTable, GroupTable, OffsetTable, TopicTable
from roquet.protocol.codes import RequestCode
from roquet.protocol.filter_table import FilterTable
from roquet.replication.client import HaClient
from roquet.replication.log import ShownPart
from roquet.replication.server import HaServer
from roquet.runtime import Runtime
from roquet.storage.disk import Disk
from roquet.storage.store import Store
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection, Handler
from roquet.transport.server import Server

log = logging.getLogger(__name__)

EXPIRY_SCAN_MS = 10_000
DURABILITY_SCAN_MS = 100
KEEP_UP_MS = 200
FILTERS_SAVED_MS = 10_000
DISPATCH_PAUSE_S = 0.005
"""A slave dispatches what came meanwhile at once: a hundred records cost little more than one."""


class Broker:
    """One broker, master or slave.

    Keeps: between `start` and `stop` it listens on three ports and owns its store directory.

    :param disk: the file system; the machine's own unless a simulation brings another.
    :param become: stops this broker and starts one with another configuration; a slave needs it to be promoted.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        become: Become | None = None,
    ) -> None:
        self.config = config.with_ports()
        self.runtime = runtime if runtime is not None else Runtime()
        self._disk = disk
        self._become = become
        self._tasks: list[asyncio.Task[None]] = []
        self.port = self.config.listen_port

    async def start(self) -> int:
        """Recover the store and serve; gives the port once it accepts.

        :raises ConfigError: the name servers know another master of this name, and it answers.
        :raises StoreError: the store directory cannot be used.
        :raises OSError: a port is taken.
        """
        self._build()
        try:
            await self._refuse_a_second_master()
            self._open_store()
            self._load_tables()
            await self._listen()
        except BaseException:
            await self._close_servers()
            self.store.abandon()
            raise
        self._start_tasks()
        return self.port

    async def stop(self) -> None:
        """Take no more requests, say goodbye to the name servers, and leave the store as after a clean stop."""
        self._main.stop_accepting()
        await self.registrar.unregister()
        await self._end_tasks()
        if await tasks.flush(self.store, self.runtime):
            self.delays.settle(self.delays.now())
        self._shown()
        await self._close_servers()
        if not self.config.is_slave:
            self.halves.note_progress()
        for file in self._files():
            await file.flush()
        self.store.close()

    async def kill(self) -> None:
        """End at once and leave everything as it lies, as a crash would."""
        await self._end_tasks()
        await self._close_servers()
        self.store.abandon()

    # building

    def _build(self) -> None:
        config, runtime = self.config, self.runtime
        loop = asyncio.get_running_loop()
        self.filters = FilterRegistry(config.filters.bloom, config.filters.filter_data_clean_time_span)
        bits = NotedFilters(self.filters, config.filters.bloom) if config.filters.enable_calc_filter_bit_map else None
        self.store = Store(part_configs.store_config(config), runtime.now_ms, self._disk, bits)
        self._build_tables()
        self.channels = Channels()
        self.dispatches = Pace(self._dispatch, DISPATCH_PAUSE_S)
        self._build_replication()
        self.durability = Durability(
            part_configs.durability_config(config),
            lambda: self.store.log.flushed_to,
            lambda: self.store.log.end,
            self.ha_server,
            lambda: loop.time() * 1000,
        )
        self.arrivals = Arrivals(lambda: loop.time() * 1000, config.pull_thread_pool_queue_capacity)
        self.measurements = Measurements(self.store, config.broker_cluster_name, runtime.now_ms)
        self.turn = Turn(self._end_turn, self.measurements.turn_took)
        self.halves = HalfMessages(
            self.store, self.catalogue, self.progress, self.turn, runtime.now_ms, config.delay_levels
        )
        self.delayed = DelayedMessages(self.store, config.delay_levels, self.delays, self.turn, runtime.now_ms)
        self.flush_wanted = asyncio.Event()
        self._shown_to = 0
        self._build_registration()
        handlers = self._handlers()
        fast = {code: handler for code, handler in handlers.items() if code != RequestCode.PULL_MESSAGE}
        self._main = Server(handlers, self._members.connection_closed)
        self._fast = Server(fast, self._members.connection_closed)

    def _build_tables(self) -> None:
        config, runtime, now_ms = self.config, self.runtime, self.runtime.now_ms()
        topics = part_configs.first_topics(config)
        self.topics = TopicRegistry(topics, now_ms, auto_create=config.auto_create_topic_enable)
        self.groups = GroupRegistry(now_ms, auto_create=config.auto_create_subscription_group)
        self.progress = ConsumerProgress(remembers=config.is_slave and config.replication.merge_slave_offsets)
        self.delays = DelayProgress()
        disk, folder = self.store.disk, config.state_folder
        self._topics_file = StateFile(disk, folder / state_files.TOPICS, self.topics.to_table, runtime)
        self._groups_file = StateFile(disk, folder / state_files.GROUPS, self.groups.to_table, runtime)
        self._offsets_file = StateFile(disk, folder / state_files.CONSUMER_OFFSETS, self.progress.to_table, runtime)
        self._delays_file = StateFile(disk, folder / state_files.DELAY_OFFSETS, self.delays.to_table, runtime)
        self._filters_file = StateFile(
            disk,
            folder / state_files.CONSUMER_FILTERS,
            lambda: self.filters.to_table(runtime.now_ms()),
            runtime,
        )
        self.catalogue = Catalogue(
            self.topics, self.groups, self._topics_changed, self._groups_file.changed, runtime.now_ms
        )
        self.leases = LeaseTable()
        self.consumers: Consumers[Connection] = Consumers()
        self.producers: Producers[Connection] = Producers()

    def _files(self) -> tuple[StateFile[Any], ...]:
        return self._topics_file, self._groups_file, self._offsets_file, self._delays_file, self._filters_file

    def _topics_changed(self, then: Then | None = None) -> None:
        self._topics_file.changed(then)
        self.registrar.soon()

    def _build_replication(self) -> None:
        """A master has a server for slaves, a slave a client of its master's."""
        self.ha_server: HaServer | None = None
        self.ha_client: HaClient | None = None
        if self.config.is_slave:
            self.ha_client = HaClient(self.store.log, self.dispatches.due, part_configs.slave_rules(self.config))
        else:
            store = self.store
            log = store.log if store.shows_at_once else ShownPart(store.log, lambda: store.shown_to)
            self.ha_server = HaServer(log, self._slave_acked, part_configs.master_rules(self.config))
        self._queue_count = 0
        self.slave_sync = SlaveSync(
            self.channels,
            lambda: self.store.log.end,
            lambda: self.store.log.flushed_to,
            self.catalogue,
            self.progress,
            self.delays,
            self._offsets_file.changed,
            self._delays_file.changed,
            self.config.replication.slave_sync_interval,
        )

    def _build_registration(self) -> None:
        config = self.config
        self.registrar = Registrar(
            self.channels,
            config.name_servers,
            part_configs.identity(config),
            self.topics.to_table,
            period_ms=config.register_period_ms,
            timeout_ms=config.register_broker_timeout_mills,
            compressed=config.compressed_register,
            permission=config.broker_permission,
            master_known=self._master_known if config.is_slave else None,
            order_known=self.catalogue.set_ordered,
        )

    def _handlers(self) -> dict[int, Handler]:
        config, now_ms = self.config, self.runtime.now_ms
        store, catalogue, name = self.store, self.catalogue, self.config.broker_name
        notify = config.notify_consumer_ids_changed_enable
        self._members = MemberRequests(
            self.consumers,
            self.producers,
            catalogue,
            self.filters,
            now_ms,
            lambda: store.newest_ms,
            filter_by_properties=config.filters.enable_property_filter,
            notify=notify,
        )
        self._cleaning = self._make_cleaning()
        measurements = self.measurements
        info = RuntimeInfo(config, store, self.delays, now_ms, (measurements.figures, self.durability.figures))
        positions = Positions(catalogue, self.consumers, self.progress, store, name, measurements.tps)
        is_slave, sends = config.is_slave, self._sends()
        return {
            **sends.routes(),
            **Replies(
                sends, self.producers, store.config.store_host, now_ms, stores=config.store_reply_message_enable
            ).routes(),
            **TransactionRequests(self.halves, store, self.durability, is_slave=is_slave).routes(),
            **self._send_backs().routes(),
            **self._pulls().routes(),
            **self._members.routes(),
            **ProgressRequests(self.progress, store, is_slave=is_slave).routes(),
            **LockRequests(self.leases, now_ms).routes(),
            **QueryRequests(store, config.store.default_query_max_num).routes(),
            **TopicAdmin(catalogue, self.progress, store, name, is_slave=is_slave).routes(),
            **GroupAdmin(
                catalogue, self.consumers, self.producers, self.progress, positions, is_slave=is_slave
            ).routes(),
            **StatsAdmin(measurements.stats, positions, catalogue, config.address).routes(),
            **ProgressAdmin(catalogue, self.consumers, self.progress, store, name).routes(),
            **Relays(self.consumers, store, name).routes(),
            **StoreAdmin(store, catalogue, self._cleaning).routes(),
            **Promotion(
                config, store, catalogue, self.channels, self.ha_client, self.slave_sync, self._become
            ).routes(),
            **HaAdmin(config, store, self.ha_server, self.ha_client, now_ms).routes(),
            **BrokerAdmin(config, DataVersion(now_ms()), info, self.progress, self.delays).routes(),
        }

    def _make_cleaning(self) -> Cleaning:
        settings = self.config.store
        return Cleaning(
            self.store,
            settings.retention,
            self.runtime,
            self._log_began_later,
            period_ms=settings.clean_resource_interval,
            log_pause_ms=settings.delete_commit_log_files_interval,
            queue_pause_ms=settings.delete_consume_queue_files_interval,
        )

    def _sends(self) -> Sends:
        settings = part_configs.send_config(self.config)
        now_ms, chance = self.runtime.now_ms, self.runtime.random
        return Sends(settings, self.store, self.catalogue, self.durability, self.turn, now_ms, chance, self.halves)

    def _send_backs(self) -> SendBacks:
        settings = part_configs.send_config(self.config)
        now_ms, chance = self.runtime.now_ms, self.runtime.random
        traffic = self.measurements.traffic
        return SendBacks(settings, self.store, self.catalogue, self.durability, self.turn, now_ms, chance, traffic)

    def _pulls(self) -> Pulls:
        settings, replication = part_configs.pull_config(self.config), self.config.replication
        balance = ReadBalance(replication.slave_read_enable, self.store.config.limits.memory_bytes)
        tables = self.catalogue, self.consumers, self.progress
        moves = OffsetMoves(self.store, self.turn, self.config.broker_name, self.runtime.now_ms)
        traffic = self.measurements.traffic
        return Pulls(settings, self.store, *tables, balance, self.arrivals, self.filters, traffic, moves)

    # starting

    async def _refuse_a_second_master(self) -> None:
        """Clients would find the one or the other; what each takes would never be in the other's log."""
        config = self.config
        if config.is_slave:
            return
        other = (await addresses_of(self.channels, config.name_servers, config.broker_name)).get(MASTER_ID)
        if other in (None, config.address) or await life_of(self.channels, other) is not Life.ANSWERS:
            return
        raise ConfigError(
            f"{other} is the master of {config.broker_name}, and answers: start this broker as its slave "
            "(brokerRole=SLAVE and a brokerId of its own), or under another brokerName"
        )

    def _open_store(self) -> None:
        """What recovery dispatches is tried on the filters of before."""
        filters = self._filters_file.load(FilterTable.from_json)
        if filters is not None:
            self.filters.restore(filters, self.runtime.now_ms())
        self.store.open()
        if self.store.was_crashed:
            self.filters.distrust_notes_until(self.store.newest_ms)

    def _load_tables(self) -> None:
        now_ms = self.runtime.now_ms()
        topics = self._topics_file.load(TopicTable.from_json)
        if topics is not None:
            self.topics.restore(topics, now_ms)
        groups = self._groups_file.load(GroupTable.from_json)
        if groups is not None:
            self.groups.restore(groups)
        offsets = self._offsets_file.load(OffsetTable.from_json)
        if offsets is not None:
            self.progress.restore(offsets)
        if not self.config.is_slave:
            set_back_progress(self.progress, self.store)
            self.halves.load()
        delays = self._delays_file.load(DelayOffsetTable.from_json)
        if delays is not None:
            self.delays.restore(delays)

    async def _listen(self) -> None:
        config = self.config
        await self._main.listen(config.bind_address, config.listen_port)
        await self._fast.listen(config.bind_address, config.fast_port)
        if self.ha_server is not None:
            await self.ha_server.listen(config.bind_address, config.ha_port)

    def _start_tasks(self) -> None:
        store, runtime, config = self.store, self.runtime, self.config
        settings = config.store
        self._spawn(self.registrar.run())
        self._spawn(tasks.checkpoint(store, runtime, settings.flush_consume_queue_thorough_interval))
        if syncs(self.config):
            self._spawn(tasks.flush_when_wanted(store, self.flush_wanted, self._shown, runtime))
        else:
            self._spawn(
                tasks.flush_now_and_then(
                    store,
                    runtime,
                    settings.flush_interval_commit_log,
                    settings.flush_commit_log_least_pages,
                    settings.flush_commit_log_thorough_interval,
                )
            )
        if store.config.pooled:
            self._spawn(tasks.each(settings.commit_interval_commit_log, self._commit))
        self._spawn(self._cleaning.watch())
        self._spawn(self._cleaning.run())
        self._spawn(tasks.each(KEEP_UP_MS, self._keep_up))
        self._spawn(tasks.each(RATES_MS, self.measurements.look_at_rates))
        for window in Window:
            self._spawn(tasks.each(window.period_ms, partial(self.measurements.look, window)))
        if self.durability.waits:
            self._spawn(tasks.each(DURABILITY_SCAN_MS, self.durability.expire))
        self._spawn(tasks.each(SWEEP_MS if config.long_polling_enable else 1000, self.arrivals.sweep))
        self._spawn(tasks.each(EXPIRY_SCAN_MS, self._members.close_silent))
        self._spawn(tasks.each(LEASE_MS, lambda: self.leases.drop_expired(runtime.now_ms())))
        self._spawn(tasks.each(config.flush_consumer_offset_interval, self._offsets_file.changed))
        self._spawn(tasks.each(FILTERS_SAVED_MS, self._save_filters))
        if not config.is_slave:
            self._spawn(tasks.each(config.flush_consumer_offset_interval, self.halves.note_progress))
            rules, now_ms = part_configs.check_rules(config), runtime.now_ms
            self._spawn(CheckBack(self.halves, self.producers, rules, config.broker_name, now_ms).run())
            self._spawn(self.delayed.run())
            changed, period_ms = self._delays_file.changed, settings.flush_delay_offset_interval
            self._spawn(tasks.settle_delays(self.delays, changed, store, runtime, period_ms))
        if self.ha_client is not None:
            self.ha_client.set_master(self.config.ha_master_address)
            self._spawn(self.slave_sync.run())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_ended)
        self._tasks.append(task)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _close_servers(self) -> None:
        await self._main.close()
        await self._fast.close()
        if self.ha_server is not None:
            await self.ha_server.close()
        if self.ha_client is not None:
            await self.ha_client.close()
        self.dispatches.stop()
        await self.channels.close()

    # what happens

    def _end_turn(self) -> None:
        """After a turn of the loop that appended: index, then disk or slaves and held pulls, each once."""
        self.store.end_turn()
        self.delayed.turn_ended()
        if syncs(self.config):
            self.flush_wanted.set()
        grown = self.store.take_grown()
        if not self.store.shows_at_once:
            return
        if self.ha_server is not None:
            self.ha_server.notify_growth()
        if grown:
            self.arrivals.wake(grown)

    def _dispatch(self) -> None:
        """A master's bytes were written to our log, and it knows by now that they were."""
        self.store.replicated()
        self.turn.due()
        if len(self.store.queues) != self._queue_count:
            self._queue_count = len(self.store.queues)
            if any(topic not in self.topics.topics for topic in self.store.queues.topics):
                self.slave_sync.soon()

    def _save_filters(self) -> None:
        if self.filters.is_due(self.runtime.now_ms()):
            self._filters_file.changed()

    def _keep_up(self) -> None:
        """Write the keys that came since, and dispatch what found no room on the drive before."""
        if self.store.dispatch.behind:
            self.dispatches.due()
        self.store.flush_index()

    def _commit(self) -> None:
        """Bring what waits in memory into the log's file."""
        self.store.log.commit()
        if self.store.shown_to > self._shown_to:
            self._shown()

    def _shown(self) -> None:
        """More of the log is on disk, or was committed: slaves and waiting pulls may see it now."""
        if self.ha_server is not None:
            self.ha_server.notify_growth()
        shown_to, self._shown_to = self._shown_to, self.store.shown_to
        self.arrivals.wake_since(shown_to)
        self.durability.advance()

    def _log_began_later(self) -> None:
        """The log has lost files: no slave can be sent those any more."""
        if self.ha_server is not None:
            self.ha_server.notify_growth()

    def _slave_acked(self) -> None:
        self.durability.advance()

    def _master_known(self, ha_address: str | None, address: str | None) -> None:
        """The name server's word on who the master is; a configured replication address stays (store-and-ha.md 5.5)."""
        self.slave_sync.master = address
        if self.ha_client is not None and self.config.ha_master_address is None and ha_address is not None:
            self.ha_client.set_master(ha_address)


def _ended(task: asyncio.Task[None]) -> None:
    """What goes wrong in one of them is dealt with inside; what is not is told of."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a part of the broker has failed, start it anew: %r", task, exc_info=error)
