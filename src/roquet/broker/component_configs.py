"""The configuration of each part of a broker, derived from `BrokerConfig`."""

from __future__ import annotations

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.transactions.open_table import CheckRules
from roquet.common.memory import physical_memory
from roquet.protocol.records.record import host_bytes
from roquet.replication import master, slave
from roquet.replication.admission import Admission, networks
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchLimits
from roquet.transport.channels import split_address


def store_config(config: BrokerConfig) -> StoreConfig:
    store = config.store
    is_master = not config.is_slave
    return StoreConfig(
        root=config.store_folder,
        commit_log_folders=config.commit_log_folders,
        commit_log_file_size=store.mapped_file_size_commit_log,
        consume_queue_file_size=store.consume_queue_file_size,
        index_enabled=store.message_index_enable,
        index_slots=store.max_hash_slot_num,
        index_entries=store.max_index_num,
        verify_on_recovery=store.check_crc_on_recover,
        delay_levels_ms=config.delay_levels.ms,
        limits=FetchLimits(
            # docs/storage/fetch.md#in-memory-on-disk
            memory_bytes=physical_memory() * store.access_message_in_memory_max_ratio // 100,
            count_in_memory=store.max_transfer_count_on_message_in_memory,
            count_on_disk=store.max_transfer_count_on_message_in_disk,
            size_in_memory=store.max_transfer_bytes_on_message_in_memory,
            size_on_disk=store.max_transfer_bytes_on_message_in_disk,
        ),
        reads_only_durable=store.is_sync_flush and is_master,
        requires_durable_log=is_master,
        store_host=host_bytes(*split_address(config.address)),
        read_only_log_folders=config.read_only_log_folders,
        pooled=store.transient_store_pool_enable and not store.is_sync_flush and is_master,
        busy_ms=store.os_page_cache_busy_time_out_mills,
        ext_file_size=store.mapped_file_size_consume_queue_ext
        if store.enable_consume_queue_ext
        else None,
        fullest=store.retention.forced_above,
    )


def check_rules(config: BrokerConfig) -> CheckRules:
    """When and how often producers are asked about open transactions."""
    return CheckRules(
        timeout_ms=config.transaction_time_out,
        checks_max=config.transaction_check_max,
        period_ms=config.transaction_check_interval,
        kept_ms=config.store.file_reserved_time * 3_600_000,
    )


def master_rules(config: BrokerConfig) -> master.Rules:
    replication = config.replication
    return master.Rules(
        chunk_size=replication.ha_transfer_batch_size,
        heartbeat_ms=replication.ha_send_heartbeat_interval,
        silence_ms_max=replication.ha_housekeeping_interval,
    )


def admission(config: BrokerConfig) -> Admission:
    """The rule for which addresses may connect as slaves, and how many."""
    replication = config.replication
    return Admission(networks(replication.ha_allowed_addresses), replication.ha_connections_max)


def slave_rules(config: BrokerConfig) -> slave.Rules:
    replication = config.replication
    return slave.Rules(
        report_ms=replication.ha_send_heartbeat_interval,
        silence_ms_max=replication.ha_housekeeping_interval,
    )
