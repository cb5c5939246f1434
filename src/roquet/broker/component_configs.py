"""The configuration of each part of a broker, derived from `BrokerConfig`."""

from __future__ import annotations

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole, FlushDisk
from roquet.broker.delivery.ack_gate import AckConfig
from roquet.broker.metadata.topics import topics_at_start
from roquet.broker.transactions.open_table import CheckRules
from roquet.common.memory import physical_memory
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.records.record import host_bytes
from roquet.replication import master, slave
from roquet.replication.admission import Admission, networks
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchLimits
from roquet.transport.channels import split_address


def syncs(config: BrokerConfig) -> bool:
    """Whether a send is acknowledged only after the log was synced (SYNC_FLUSH)."""
    return config.store.flush_disk_type is FlushDisk.SYNC_FLUSH


def readable_memory(config: BrokerConfig) -> int:
    """The size in bytes of the last part of the log that counts as being in memory.

    See docs/storage/fetch.md#in-memory-on-disk.
    """
    return physical_memory() * config.store.access_message_in_memory_max_ratio // 100


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
            memory_bytes=readable_memory(config),
            count_in_memory=store.max_transfer_count_on_message_in_memory,
            count_on_disk=store.max_transfer_count_on_message_in_disk,
            size_in_memory=store.max_transfer_bytes_on_message_in_memory,
            size_on_disk=store.max_transfer_bytes_on_message_in_disk,
        ),
        reads_only_durable=syncs(config) and is_master,
        requires_durable_log=is_master,
        store_host=host_bytes(*split_address(config.address)),
        read_only_log_folders=config.read_only_log_folders,
        pooled=store.transient_store_pool_enable and not syncs(config) and is_master,
        busy_ms=store.os_page_cache_busy_time_out_mills,
        ext_file_size=store.mapped_file_size_consume_queue_ext
        if store.enable_consume_queue_ext
        else None,
        fullest=store.retention.forced_above,
    )


def ack_config(config: BrokerConfig) -> AckConfig:
    replication = config.replication
    return AckConfig(
        flush=syncs(config),
        replicate=replication.broker_role is BrokerRole.SYNC_MASTER,
        flush_timeout_ms=config.store.sync_flush_timeout,
        slave_timeout_ms=replication.slave_timeout,
        fall_behind_max=replication.ha_slave_fallbehind_max,
        waiting_max=config.waiting_sends_max,
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


def first_topics(config: BrokerConfig) -> list[TopicConfig]:
    return topics_at_start(
        config.broker_cluster_name,
        config.broker_name,
        default_queues=config.default_topic_queue_nums,
        auto_create=config.auto_create_topic_enable,
        cluster_topic=config.cluster_topic_enable,
        broker_topic=config.broker_topic_enable,
        trace_topic=config.msg_trace_topic_name if config.trace_topic_enable else None,
    )
