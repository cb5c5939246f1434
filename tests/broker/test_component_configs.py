"""What each part of a broker is configured with, by the names in broker.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker import component_configs
from roquet.broker.config.broker import BrokerConfig, read_config
from roquet.broker.transactions.open_table import CheckRules
from roquet.common.memory import physical_memory
from roquet.errors import ConfigError
from roquet.replication import master, slave

MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")


def config(**settings: object) -> BrokerConfig:
    named = {"brokerName": "b", "brokerIP1": "10.0.0.1", "listenPort": 7000, **settings}
    if named.get("brokerRole") == "SLAVE":
        named["brokerId"] = 1
    return read_config([(name, str(value)) for name, value in named.items()], environment={})[0]


def test_the_store_is_where_and_as_large_as_the_settings_say() -> None:
    store = component_configs.store_config(
        config(
            storePathRootDir="/s",
            storePathCommitLog="/a,/b",
            readOnlyCommitLogStorePaths="/old",
            mappedFileSizeCommitLog=4096,
            mappedFileSizeConsumeQueue=41,
            maxHashSlotNum=7,
            maxIndexNum=9,
            messageIndexEnable="false",
            checkCRCOnRecover="false",
            messageDelayLevel="1s 2m",
            osPageCacheBusyTimeOutMills=77,
        )
    )
    assert store.root == Path("/s")
    assert list(store.commit_log_folders) == [Path("/a"), Path("/b")]
    assert list(store.read_only_log_folders) == [Path("/old")]
    assert (store.commit_log_file_size, store.consume_queue_file_size) == (4096, 60)
    assert (store.index_slots, store.index_entries, store.index_enabled) == (7, 9, False)
    assert not store.verify_on_recovery
    assert (store.delay_levels_ms, store.busy_ms) == ((1000, 120_000), 77)


def test_new_records_name_the_brokers_address() -> None:
    store = component_configs.store_config(config())
    assert store.store_host == bytes([10, 0, 0, 1]) + (7000).to_bytes(4, "big")


def test_a_fetch_takes_as_much_as_the_settings_allow() -> None:
    limits = component_configs.store_config(
        config(
            accessMessageInMemoryMaxRatio=30,
            maxTransferCountOnMessageInMemory=5,
            maxTransferCountOnMessageInDisk=3,
            maxTransferBytesOnMessageInMemory=500,
            maxTransferBytesOnMessageInDisk=300,
        )
    ).limits
    assert limits.memory_bytes == physical_memory() * 30 // 100
    assert (limits.count_in_memory, limits.count_on_disk) == (5, 3)
    assert (limits.size_in_memory, limits.size_on_disk) == (500, 300)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("role", [*MASTER_ROLES, "SLAVE"])
def test_only_a_master_hides_what_is_not_durable_and_refuses_a_log_with_a_lost_end(
    role: str, flush: str
) -> None:
    store = component_configs.store_config(config(brokerRole=role, flushDiskType=flush))
    is_master = role in MASTER_ROLES
    assert store.reads_only_durable == (is_master and flush == "SYNC_FLUSH")
    assert store.requires_durable_log == is_master


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("role", [*MASTER_ROLES, "SLAVE"])
def test_records_wait_in_memory_only_at_a_master_that_syncs_later(role: str, flush: str) -> None:
    settings = {"brokerRole": role, "flushDiskType": flush}
    pooled = component_configs.store_config(config(transientStorePoolEnable="true", **settings))
    assert pooled.pooled == (role in MASTER_ROLES and flush == "ASYNC_FLUSH")
    assert not component_configs.store_config(config(**settings)).pooled


@pytest.mark.parametrize(("enabled", "size"), [("true", 65536), ("false", None)])
def test_queues_have_extension_units_only_if_they_are_enabled(
    enabled: str, size: int | None
) -> None:
    store = component_configs.store_config(
        config(enableConsumeQueueExt=enabled, mappedFileSizeConsumeQueueExt=65536)
    )
    assert store.ext_file_size == size


def test_transactions_are_checked_as_often_as_the_settings_say() -> None:
    rules = component_configs.check_rules(
        config(
            transactionTimeOut=1000,
            transactionCheckMax=3,
            transactionCheckInterval=2000,
            fileReservedTime=2,
        )
    )
    assert rules == CheckRules(1000, 3, 2000, 7_200_000)


def test_both_ends_of_a_replication_have_the_same_times() -> None:
    settings = config(
        haTransferBatchSize=100, haSendHeartbeatInterval=200, haHousekeepingInterval=300
    )
    assert component_configs.master_rules(settings) == master.Rules(
        chunk_size=100, heartbeat_ms=200, silence_ms_max=300
    )
    assert component_configs.slave_rules(settings) == slave.Rules(report_ms=200, silence_ms_max=300)


def test_slaves_may_be_in_the_networks_that_the_settings_name() -> None:
    admission = component_configs.admission(
        config(haAllowedAddresses="10.1.0.0/16,10.2.0.1", haConnectionsMax=2)
    )
    hosts = ("10.1.2.3", "10.2.0.1", "10.2.0.2")
    assert [admission.allows(host) for host in hosts] == [True, True, False]
    assert admission.connections_max == 2


def test_networks_that_are_none_are_refused_when_the_file_is_read() -> None:
    with pytest.raises(ConfigError, match="haAllowedAddresses"):
        config(haAllowedAddresses="10.1.0.0/40")
