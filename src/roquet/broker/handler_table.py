"""Constructs the handlers of a broker and maps request codes to them, group by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delivery.long_polls import LongPolls
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.handlers.admin.broker import BrokerAdmin
from roquet.broker.handlers.admin.groups import GroupAdmin
from roquet.broker.handlers.admin.jobs import Jobs
from roquet.broker.handlers.admin.offsets import OffsetAdmin
from roquet.broker.handlers.admin.stats import StatsAdmin
from roquet.broker.handlers.admin.topics import TopicAdmin
from roquet.broker.handlers.client_proxy import ClientProxy
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
from roquet.broker.metadata.members import Producers
from roquet.broker.metrics.measurements import Measurements
from roquet.broker.metrics.runtime_info import RuntimeInfo
from roquet.broker.metrics.traffic import Traffic
from roquet.broker.offsets.group_lag import GroupLag
from roquet.broker.offsets.moved_event import OffsetMovedEvents
from roquet.broker.tables import Tables
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.protocol.bodies.tables import DataVersion
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import FastPathMakers
from roquet.transport.slices import Slices

Handlers = Mapping[int, Handler]
"""Handlers by request code."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Who answers the requests of a connection: handlers by request code, and the fast paths."""

    handlers: Handlers
    fast_paths: FastPathMakers[Connection]


def of_producers(
    config: BrokerConfig,
    context: SendContext,
    sends: SendHandler,
    halves: HalfMessages,
    producers: Producers[Connection],
) -> Handlers:
    """Handlers of sends, replies and ends of transactions."""
    store = context.store
    stores = config.store_reply_message_enable
    replies = ReplyHandler(sends, producers, store.config.store_host, context.now_ms, stores=stores)
    transactions = TransactionHandler(halves, store, context.ack_gate, is_slave=config.is_slave)
    return {**sends.routes(), **replies.routes(), **transactions.routes()}


def pull_handler(
    config: BrokerConfig,
    context: SendContext,
    tables: Tables,
    long_polls: LongPolls,
    traffic: Traffic,
) -> PullHandler:
    """The handler of pulls, which makes a fast path, too."""
    store = context.store
    return PullHandler(
        config,
        store,
        tables.metadata,
        tables.consumers,
        tables.offsets,
        ReadBalance(config.replication.slave_read_enable, store.config.limits.memory_bytes),
        long_polls,
        tables.filters,
        traffic,
        OffsetMovedEvents(
            store, context.write_gate, context.turn, config.broker_name, context.now_ms
        ),
    )


def of_consumers(
    config: BrokerConfig,
    context: SendContext,
    tables: Tables,
    traffic: Traffic,
    steady_ms: Callable[[], float],
    slices: Slices,
) -> Handlers:
    """Handlers of offsets, queue locks, queries, and of messages that are sent back."""
    store = context.store
    settings = config.store
    queries = QueryHandler(
        store, settings.default_query_max_num, settings.max_msgs_num_batch, slices
    )
    return {
        **SendBackHandler(context, traffic).routes(),
        **OffsetHandler(tables.offsets, store, is_slave=config.is_slave).routes(),
        **LockHandler(tables.leases, steady_ms, slices, config.limits).routes(),
        **queries.routes(),
    }


def of_tables(
    config: BrokerConfig,
    store: Store,
    tables: Tables,
    lag: GroupLag,
    deletion: QueueDeletion,
    jobs: Jobs,
    slices: Slices,
) -> Handlers:
    """Handlers of admin tools' requests for topics, groups, offsets and connected consumers."""
    name = config.broker_name
    is_slave = config.is_slave
    metadata = tables.metadata
    consumers = tables.consumers
    offsets = tables.offsets
    topics = TopicAdmin(metadata, offsets, store, name, deletion, jobs, slices, is_slave=is_slave)
    groups = GroupAdmin(
        metadata, consumers, tables.producers, offsets, lag, slices, is_slave=is_slave
    )
    return {
        **topics.routes(),
        **groups.routes(),
        **OffsetAdmin(metadata, consumers, offsets, store, name, slices).routes(),
        **MemberStatus(consumers, slices, config.limits).routes(),
        **ClientProxy(consumers, store, name).routes(),
    }


def of_measurements(
    config: BrokerConfig,
    store: Store,
    tables: Tables,
    lag: GroupLag,
    measurements: Measurements,
    figures: Sequence[Callable[[], Mapping[str, str]]],
    now_ms: Callable[[], int],
    slices: Slices,
) -> Handlers:
    """Handlers of admin tools' requests for statistics, configuration and runtime information.

    :param figures: give further figures of the runtime information.
    """
    delay_offsets = tables.delay_offsets
    info = RuntimeInfo(config, store, delay_offsets, now_ms, figures, measurements.figures)
    version = DataVersion(now_ms())
    stats = StatsAdmin(measurements.stats, lag, tables.metadata, config.address, slices)
    broker = BrokerAdmin(config, version, info, tables.offsets, delay_offsets, slices)
    return {**stats.routes(), **broker.routes()}
