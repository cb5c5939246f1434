"""Settings of the store and of replication; names and defaults of Apache's MessageStoreConfig."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.common.settings import setting
from roquet.storage.retention import Retention

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MESSAGE_SIZE_MIN: Final = 10
"""A smaller `maxMessageSize` counts as this."""


class BrokerRole(Enum):
    """The value of `brokerRole`."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDisk(Enum):
    """The value of `flushDiskType`."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class SyncFailureAction(Enum):
    """The value of `syncFailureAction`: what a broker does after a failed sync (decision 0025)."""

    STOP = "stop"
    READ_ONLY = "readOnly"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings of the store: sizes in bytes, times in ms, `~` in a path is the home directory.

    `file_reserved_time` is in hours. `delete_when` is an hour of the day, or several separated by
    `;`. The ratios are percents; Apache 4.x takes the two `disk_space_..._ratio` from properties of
    the JVM, 5.x from this file.
    """

    store_path_root_dir: str = "~/store"
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    mapped_file_size_commit_log: int = setting(
        1 << 30, aliases=("mapedFileSizeCommitLog",), at_least=1024
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000, aliases=("mapedFileSizeConsumeQueue",), at_least=20
    )
    max_message_size: int = setting(4 << 20, at_least=1)
    check_crc_on_recover: bool = setting(True, "checkCRCOnRecover")
    delete_when: str = "04"
    file_reserved_time: int = setting(72, at_least=0)
    disk_max_used_space_ratio: int = setting(75, at_least=0, at_most=100)
    disk_space_clean_forcibly_ratio: int = setting(85, at_least=0, at_most=100)
    disk_space_warning_level_ratio: int = setting(90, at_least=0, at_most=100)
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = setting(10_000, at_least=1)
    delete_commit_log_files_interval: int = setting(100, at_least=0)
    delete_consume_queue_files_interval: int = setting(100, at_least=0)
    destroy_maped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000

    flush_disk_type: FlushDisk = FlushDisk.ASYNC_FLUSH
    sync_flush_timeout: int = setting(5000, at_least=0)
    sync_failure_action: SyncFailureAction = SyncFailureAction.STOP
    flush_interval_commit_log: int = setting(500, at_least=1)
    flush_commit_log_least_pages: int = setting(4, at_least=0)
    flush_commit_log_thorough_interval: int = setting(10_000, at_least=0)
    flush_commit_log_timed: bool = True
    flush_interval_consume_queue: int = setting(1000, at_least=1)
    flush_consume_queue_least_pages: int = setting(2, at_least=0)
    flush_consume_queue_thorough_interval: int = setting(60_000, at_least=0)
    commit_interval_commit_log: int = setting(200, at_least=1)
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_least_pages_when_warm_maped_file: int = 4096
    warm_maped_file_enable: bool = False
    os_page_cache_busy_time_out_mills: int = setting(1000, at_least=0)

    access_message_in_memory_max_ratio: int = setting(40, at_least=0, at_most=100)
    max_transfer_bytes_on_message_in_memory: int = setting(256 << 10, at_least=1)
    max_transfer_count_on_message_in_memory: int = setting(32, at_least=1)
    max_transfer_bytes_on_message_in_disk: int = setting(64 << 10, at_least=1)
    max_transfer_count_on_message_in_disk: int = setting(8, at_least=1)

    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = setting(5_000_000, at_least=1)
    max_index_num: int = setting(20_000_000, at_least=2)
    max_msgs_num_batch: int = setting(64, at_least=1)
    default_query_max_num: int = setting(32, at_least=1)

    message_delay_level: str = DELAY_LEVELS
    flush_delay_offset_interval: int = setting(10_000, at_least=1)
    enable_schedule_message_stats: bool = True
    enable_schedule_async_deliver: bool = False
    schedule_async_deliver_max_pending_limit: int = 2000
    schedule_async_deliver_max_resend_num2_blocked: int = setting(
        3, "scheduleAsyncDeliverMaxResendNum2Blocked"
    )

    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = setting(48 << 20, at_least=65536)
    bit_map_length_consume_queue_ext: int = 64
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    use_reentrant_lock_when_put_message: bool = True
    put_msg_index_hight_water: int = 600_000
    duplication_enable: bool = False
    debug_lock_enable: bool = False
    disk_fall_recorded: bool = True
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000

    enable_d_leger_commit_log: bool = setting(False, "enableDLegerCommitLog")
    store_path_d_ledger_commit_log: str | None = setting(None, "storePathDLedgerCommitLog")
    d_leger_group: str | None = None
    d_leger_peers: str | None = None
    d_leger_self_id: str | None = None
    preferred_leader_id: str | None = None
    is_enable_batch_push: bool = setting(False, aliases=("enableBatchPush",))

    @property
    def is_sync_flush(self) -> bool:
        """Whether a send is acknowledged only after the log was synced."""
        return self.flush_disk_type is FlushDisk.SYNC_FLUSH

    @property
    def retention(self) -> Retention:
        """The rules by which segments of the log are deleted.

        :raises ValueError: `delete_when` is not a list of hours.
        """
        hours = frozenset(int(hour) for hour in self.delete_when.split(";") if hour.strip())
        if not all(0 <= hour < 24 for hour in hours):
            raise ValueError
        return Retention(
            self.file_reserved_time * 3_600_000,
            hours,
            self.disk_max_used_space_ratio / 100,
            self.disk_space_clean_forcibly_ratio / 100,
            self.disk_space_warning_level_ratio / 100,
            self.clean_file_forcibly_enable,
        )

    @property
    def consume_queue_file_size(self) -> int:
        """Bytes of a consume queue file, rounded up to whole entries as Apache does."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def message_size_max(self) -> int:
        return max(self.max_message_size, MESSAGE_SIZE_MIN)


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Settings of replication: sizes in bytes, times in ms.

    The HA port is always `listenPort` + 1, whatever `haListenPort` says.

    Four settings are not Apache's. `slave_sync_interval`: how often a slave copies its master's
    tables (Apache 4.x: 10 s, 5.x: 60 s). `merge_slave_offsets`: whether a slave sends offsets that
    consumers committed to it to the master (Apache's slave loses them). `ha_allowed_addresses` and
    `ha_connections_max`: from where slaves may connect, and how many.
    """

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    ha_listen_port: int = 10912
    ha_master_address: str | None = None
    ha_send_heartbeat_interval: int = setting(5000, at_least=1)
    ha_housekeeping_interval: int = setting(20_000, at_least=1)
    ha_transfer_batch_size: int = setting(32 << 10, at_least=1)
    ha_slave_fallbehind_max: int = setting(256 << 20, at_least=0)
    slave_timeout: int = setting(3000, at_least=0)
    slave_sync_interval: int = setting(10_000, at_least=100)
    merge_slave_offsets: bool = True
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    ha_allowed_addresses: str = ""
    ha_connections_max: int = setting(64, at_least=1)
