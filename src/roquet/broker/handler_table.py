"""Who answers what is asked of a broker."""

from __future__ import annotations

from roquet.broker import component_configs
from roquet.broker.components import Parts
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.ha.promotion import Promotion
from roquet.broker.handlers.admin.broker import BrokerAdmin
from roquet.broker.handlers.admin.groups import GroupAdmin
from roquet.broker.handlers.admin.ha import HaAdmin
from roquet.broker.handlers.admin.offsets import ProgressAdmin
from roquet.broker.handlers.admin.stats import StatsAdmin
from roquet.broker.handlers.admin.store import StoreAdmin
from roquet.broker.handlers.admin.topics import TopicAdmin
from roquet.broker.handlers.client_proxy import Relays
from roquet.broker.handlers.locks import LockRequests
from roquet.broker.handlers.member_status import MemberStatus
from roquet.broker.handlers.offsets import ProgressRequests
from roquet.broker.handlers.pull import Pulls
from roquet.broker.handlers.query import QueryRequests
from roquet.broker.handlers.replies import Replies
from roquet.broker.handlers.send import Sends
from roquet.broker.handlers.send_back import SendBacks
from roquet.broker.handlers.send_context import Intake
from roquet.broker.handlers.transactions import TransactionRequests
from roquet.broker.maintenance.queue_deletion import QueueDeletion
from roquet.broker.metrics.runtime_info import RuntimeInfo
from roquet.broker.offsets.group_lag import Positions
from roquet.broker.offsets.moved_event import OffsetMoves
from roquet.protocol.bodies.tables import DataVersion
from roquet.transport.connection import Handler


def handlers(parts: Parts) -> dict[int, Handler]:
    """Request code -> handler."""
    intake = Intake(
        component_configs.send_config(parts.config),
        parts.store,
        parts.tables.catalogue,
        parts.durability,
        parts.turn,
        parts.clock.now_ms,
        parts.runtime.random,
    )
    return {**_of_producers(parts, intake), **_of_consumers(parts, intake), **_of_admins(parts)}


def _of_producers(parts: Parts, intake: Intake) -> dict[int, Handler]:
    config, store, halves = parts.config, parts.store, parts.halves
    sends = Sends(intake, halves, parts.slices)
    stores = config.store_reply_message_enable
    replies = Replies(sends, parts.tables.producers, store.config.store_host, intake.now_ms, stores=stores)
    transactions = TransactionRequests(halves, store, parts.durability, is_slave=config.is_slave)
    return {**sends.routes(), **replies.routes(), **transactions.routes()}


def _of_consumers(parts: Parts, intake: Intake) -> dict[int, Handler]:
    config, store, tables = parts.config, parts.store, parts.tables
    return {
        **_pulls(parts).routes(),
        **SendBacks(intake, parts.measurements.traffic).routes(),
        **parts.members.routes(),
        **ProgressRequests(tables.progress, store, is_slave=config.is_slave).routes(),
        **LockRequests(tables.leases, parts.runtime.steady_ms, parts.slices, config.limits).routes(),
        **QueryRequests(
            store, config.store.default_query_max_num, config.store.max_msgs_num_batch, parts.slices
        ).routes(),
    }


def _pulls(parts: Parts) -> Pulls:
    config, store, tables = parts.config, parts.store, parts.tables
    return Pulls(
        component_configs.pull_config(config),
        store,
        tables.catalogue,
        tables.consumers,
        tables.progress,
        ReadBalance(config.replication.slave_read_enable, store.config.limits.memory_bytes),
        parts.arrivals,
        tables.filters,
        parts.measurements.traffic,
        OffsetMoves(store, parts.turn, config.broker_name, parts.clock.now_ms),
    )


def _of_admins(parts: Parts) -> dict[int, Handler]:
    config, store, tables, measurements = parts.config, parts.store, parts.tables, parts.measurements
    name, is_slave, now_ms, catalogue = config.broker_name, config.is_slave, parts.runtime.now_ms, tables.catalogue
    slices = parts.slices
    positions = Positions(catalogue, tables.consumers, tables.progress, store, name, measurements.tps)
    figures = (parts.durability.figures, parts.peers.figures)
    info = RuntimeInfo(config, store, tables.delays, now_ms, figures, measurements.figures)
    groups = GroupAdmin(
        catalogue, tables.consumers, tables.producers, tables.progress, positions, slices, is_slave=is_slave
    )
    deletion = QueueDeletion(store, parts.runtime, parts.checkpointing, slices)
    promotion = Promotion(config, store, catalogue, parts.channels, parts.ha_client, parts.slave_sync, parts.become)
    return {
        **TopicAdmin(catalogue, tables.progress, store, name, deletion, parts.jobs, slices, is_slave=is_slave).routes(),
        **groups.routes(),
        **StatsAdmin(measurements.stats, positions, catalogue, config.address, slices).routes(),
        **ProgressAdmin(catalogue, tables.consumers, tables.progress, store, name, slices).routes(),
        **MemberStatus(tables.consumers, slices, config.limits).routes(),
        **Relays(tables.consumers, store, name).routes(),
        **StoreAdmin(store, catalogue, parts.cleaning, deletion, parts.jobs).routes(),
        **promotion.routes(),
        **HaAdmin(config, store, parts.ha_server, parts.ha_client, now_ms).routes(),
        **BrokerAdmin(config, DataVersion(now_ms()), info, tables.progress, tables.delays, slices).routes(),
    }
