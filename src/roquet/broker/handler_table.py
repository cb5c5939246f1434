"""Constructs the handlers of a broker and maps request codes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roquet.broker.components import Components
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.ha.promotion import Promotion
from roquet.broker.handlers.admin.broker import BrokerAdmin
from roquet.broker.handlers.admin.cleanup import CleanupAdmin
from roquet.broker.handlers.admin.groups import GroupAdmin
from roquet.broker.handlers.admin.ha import HaAdmin
from roquet.broker.handlers.admin.offsets import OffsetAdmin
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
from roquet.transport.handling import FastPathMakers

Handlers = Mapping[int, Handler]
"""Handlers by request code."""


@dataclass(frozen=True, slots=True)
class HandlerTable:
    """Who answers the requests of a connection: handlers by request code, and the fast paths."""

    handlers: Handlers
    fast_paths: FastPathMakers[Connection]


def table_of(parts: Components) -> HandlerTable:
    """The handler of each request code, and what makes fast paths."""
    context = SendContext(
        parts.config,
        parts.store,
        parts.tables.topics,
        parts.tables.groups,
        parts.write_gate,
        parts.ack_gate,
        parts.turn,
        parts.clock.now_ms,
        parts.runtime.random,
    )
    sends = SendHandler(context, parts.halves, parts.slices)
    pulls = _pull_handler(parts, context)
    handlers = {
        **sends.handlers(),
        **ReplyHandler(context, sends, parts.tables.producers).handlers(),
        **TransactionHandler(context, parts.halves).handlers(),
        **pulls.handlers(),
        **_of_consumers(parts, context),
        **parts.members.handlers(),
        **_of_admin_tools(parts),
    }
    # Sends first: only runs of sends are cheaper together.
    return HandlerTable(handlers, {FastSend: sends.fast_path, FastPull: pulls.fast_path})


def _pull_handler(parts: Components, context: SendContext) -> PullHandler:
    config = parts.config
    store = parts.store
    tables = parts.tables
    return PullHandler(
        config,
        store,
        tables.topics,
        tables.groups,
        tables.consumers,
        tables.offsets,
        ReadBalance(config.replication.slave_read_enable, store.config.limits.memory_bytes),
        parts.long_polls,
        tables.filters,
        parts.measurements.traffic,
        OffsetMovedEvents(store, parts.write_gate, parts.turn, config.broker_name, context.now_ms),
    )


def _of_consumers(parts: Components, context: SendContext) -> Handlers:
    """Handlers of offsets, queue locks, queries, and of messages that are sent back."""
    config = parts.config
    store = parts.store
    tables = parts.tables
    slices = parts.slices
    queries = QueryHandler(
        store, config.store.default_query_max_num, config.store.max_msgs_num_batch, slices
    )
    return {
        **SendBackHandler(context, parts.measurements.traffic).handlers(),
        **OffsetHandler(tables.offsets, store, is_slave=config.is_slave).handlers(),
        **LockHandler(tables.leases, parts.runtime.steady_ms, slices, config.limits).handlers(),
        **queries.handlers(),
    }


def _of_admin_tools(parts: Components) -> Handlers:
    """Handlers of requests for topics, groups, members, statistics, old files and replication."""
    config = parts.config
    name = config.broker_name
    store = parts.store
    slices = parts.slices
    now_ms = parts.runtime.now_ms
    measurements = parts.measurements
    topics, groups = parts.tables.topics, parts.tables.groups
    consumers = parts.tables.consumers
    offsets = parts.tables.offsets
    delay_offsets = parts.tables.delay_offsets
    follower = parts.follower
    lag = GroupLag(topics, consumers, offsets, store, name, measurements.tps)
    deletion = QueueDeletion(store, parts.runtime, parts.checkpointing, slices)
    figures = (parts.ack_gate.figures, parts.peers.figures)
    info = RuntimeInfo(config, store, delay_offsets, now_ms, figures, measurements.figures)
    admins = (
        TopicAdmin(config, topics, offsets, store, deletion, parts.jobs, slices),
        GroupAdmin(config, groups, consumers, parts.tables.producers, offsets, lag, slices),
        OffsetAdmin(topics, consumers, offsets, store, name, slices),
        MemberStatus(consumers, slices, config.limits),
        ClientProxy(consumers, store, name),
        BrokerAdmin(
            config,
            DataVersion(now_ms()),
            info,
            offsets,
            delay_offsets,
            measurements.stats,
            slices,
        ),
        CleanupAdmin(store, topics, parts.cleaning, deletion, parts.jobs),
        HaAdmin(
            config, store, parts.ha_server, None if follower is None else follower.client, now_ms
        ),
        Promotion(config, store, topics, parts.channels, follower, parts.restart_as),
    )
    return {code: handler for admin in admins for code, handler in admin.handlers().items()}
