"""Maps each request code to the handler that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from roquet.broker import component_configs
from roquet.broker.components import Components
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.ha.promotion import Promotion
from roquet.broker.handlers.admin.broker import BrokerAdmin
from roquet.broker.handlers.admin.cleanup import CleanupAdmin
from roquet.broker.handlers.admin.groups import GroupAdmin
from roquet.broker.handlers.admin.ha import HaAdmin
from roquet.broker.handlers.admin.offsets import OffsetAdmin
from roquet.broker.handlers.admin.stats import StatsAdmin
from roquet.broker.handlers.admin.topics import TopicAdmin
from roquet.broker.handlers.client_proxy import ClientProxy
from roquet.broker.handlers.fastpath.pull import FastPull
from roquet.broker.handlers.fastpath.send import FastSend
from roquet.broker.handlers.locks import LockHandler
from roquet.broker.handlers.member_status import MemberStatus
from roquet.broker.handlers.offsets import OffsetHandler
from roquet.broker.handlers.pull import PullHandler
from roquet.broker.handlers.query import QueryHandler
from roquet.broker.handlers.replies import ReplyHandler
from roquet.broker.handlers.send import SendHandler
from roquet.broker.handlers.send_back import SendBackHandler
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.handlers.transactions import TransactionHandler
from roquet.broker.maintenance.queue_deletion import QueueDeletion
from roquet.broker.metrics.runtime_info import RuntimeInfo
from roquet.broker.offsets.group_lag import GroupLag
from roquet.broker.offsets.moved_event import OffsetMovedEvents
from roquet.protocol.bodies.tables import DataVersion
from roquet.transport.connection import Connection, Handler
from roquet.transport.dispatcher import FastPathMakers


@dataclass(frozen=True, slots=True)
class Routes:
    """Who answers the requests of a connection: handlers by request code, and the fast paths."""

    handlers: dict[int, Handler]
    fast_paths: FastPathMakers[Connection]


def routes(parts: Components) -> Routes:
    """The handler of each request code, and what makes fast paths."""
    send_context = SendContext(
        component_configs.send_config(parts.config),
        parts.store,
        parts.tables.metadata,
        parts.ack_gate,
        parts.turn,
        parts.clock.now_ms,
        parts.runtime.random,
    )
    sends = SendHandler(send_context, parts.halves, parts.slices)
    pulls = _pulls(parts)
    return Routes(
        {
            **_of_producers(parts, send_context, sends),
            **pulls.routes(),
            **_of_consumers(parts, send_context),
            **_of_admins(parts),
        },
        # Sends first: only runs of sends are cheaper together.
        {FastSend: sends.fast_path, FastPull: pulls.fast_path},
    )


def _of_producers(
    parts: Components, send_context: SendContext, sends: SendHandler
) -> dict[int, Handler]:
    config = parts.config
    store = parts.store
    halves = parts.halves
    stores = config.store_reply_message_enable
    replies = ReplyHandler(
        sends, parts.tables.producers, store.config.store_host, send_context.now_ms, stores=stores
    )
    transactions = TransactionHandler(halves, store, parts.ack_gate, is_slave=config.is_slave)
    return {**sends.routes(), **replies.routes(), **transactions.routes()}


def _of_consumers(parts: Components, send_context: SendContext) -> dict[int, Handler]:
    config = parts.config
    store = parts.store
    tables = parts.tables
    return {
        **SendBackHandler(send_context, parts.measurements.traffic).routes(),
        **parts.members.routes(),
        **OffsetHandler(tables.progress, store, is_slave=config.is_slave).routes(),
        **LockHandler(tables.leases, parts.runtime.steady_ms, parts.slices, config.limits).routes(),
        **QueryHandler(
            store, config.store.default_query_max_num, config.store.max_msgs_num_batch, parts.slices
        ).routes(),
    }


def _pulls(parts: Components) -> PullHandler:
    config = parts.config
    store = parts.store
    tables = parts.tables
    return PullHandler(
        component_configs.pull_config(config),
        store,
        tables.metadata,
        tables.consumers,
        tables.progress,
        ReadBalance(config.replication.slave_read_enable, store.config.limits.memory_bytes),
        parts.long_polls,
        tables.filters,
        parts.measurements.traffic,
        OffsetMovedEvents(store, parts.turn, config.broker_name, parts.clock.now_ms),
    )


def _of_admins(parts: Components) -> dict[int, Handler]:
    config = parts.config
    store = parts.store
    tables = parts.tables
    measurements = parts.measurements
    name = config.broker_name
    is_slave = config.is_slave
    now_ms = parts.runtime.now_ms
    metadata = tables.metadata
    slices = parts.slices
    positions = GroupLag(metadata, tables.consumers, tables.progress, store, name, measurements.tps)
    figures = (parts.ack_gate.figures, parts.peers.figures)
    info = RuntimeInfo(config, store, tables.delays, now_ms, figures, measurements.figures)
    groups = GroupAdmin(
        metadata,
        tables.consumers,
        tables.producers,
        tables.progress,
        positions,
        slices,
        is_slave=is_slave,
    )
    deletion = QueueDeletion(store, parts.runtime, parts.checkpointing, slices)
    promotion = Promotion(
        config, store, metadata, parts.channels, parts.ha_client, parts.slave_sync, parts.restart_as
    )
    return {
        **TopicAdmin(
            metadata, tables.progress, store, name, deletion, parts.jobs, slices, is_slave=is_slave
        ).routes(),
        **groups.routes(),
        **StatsAdmin(measurements.stats, positions, metadata, config.address, slices).routes(),
        **OffsetAdmin(metadata, tables.consumers, tables.progress, store, name, slices).routes(),
        **MemberStatus(tables.consumers, slices, config.limits).routes(),
        **ClientProxy(tables.consumers, store, name).routes(),
        **CleanupAdmin(store, metadata, parts.cleaning, deletion, parts.jobs).routes(),
        **promotion.routes(),
        **HaAdmin(config, store, parts.ha_server, parts.ha_client, now_ms).routes(),
        **BrokerAdmin(
            config, DataVersion(now_ms()), info, tables.progress, tables.delays, slices
        ).routes(),
    }
