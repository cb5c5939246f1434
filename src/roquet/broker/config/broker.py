"""Reads broker.conf into frozen dataclasses, and writes a role into it; names are Apache's.

See docs/broker/configuration.md#how-the-file-is-read.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from roquet.broker.config.addresses import free_listen_port, own_address
from roquet.broker.config.delay_levels import DelayLevels
from roquet.broker.config.filter import FilterSettings
from roquet.broker.config.java import JavaSettings
from roquet.broker.config.limits import Limits
from roquet.broker.config.store import BrokerRole, ReplicationSettings, StoreSettings
from roquet.common.files import replace_with_backup
from roquet.common.properties import changed
from roquet.common.settings import read_settings, setting
from roquet.errors import ConfigError
from roquet.protocol.bodies.tables import MASTER_ID
from roquet.protocol.records.message import READ_WRITE, TRACE_TOPIC, Permission
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.replication.admission import networks
from roquet.transport.channels import split_address
from roquet.transport.limits import PeerLimits

FAST_PORT_STEP: Final = -2
HA_PORT_STEP: Final = 1
HA_MASTER_ADDRESS_SIZE_MIN: Final = 6
"""A shorter `haMasterAddress` counts as not set, as in Apache
(docs/storage/replication.md#how-a-slave-finds-its-master)."""

_HEADER_ROOM: Final = 64 * 1024
"""Bytes allowed for a send request without its body: topic, properties, other header fields."""
_REGISTER_PERIOD_MS: Final = (10_000, 60_000)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration of a broker. Times are in ms.

    Invariant: a configuration from `read_config` has a name, addresses, and an id that fits its
    role.

    Clients connect to `broker_ip1`, slaves to `broker_ip2`. The broker listens on `bind_address` (a
    setting of Apache 5.x). `with_ports` replaces a `listen_port` of 0 by a free port.
    """

    namesrv_addr: str = ""
    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = ""
    broker_id: int = setting(MASTER_ID, at_least=-1)
    broker_ip1: str = setting("", "brokerIP1")
    broker_ip2: str = setting("", "brokerIP2")
    listen_port: int = setting(10911, at_least=0, at_most=65534)
    bind_address: str = "0.0.0.0"
    broker_permission: int = setting(READ_WRITE, at_least=0, at_most=7)

    default_topic_queue_nums: int = setting(8, at_least=1)
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = TRACE_TOPIC
    trace_on: bool = True
    enable_detail_stat: bool = True
    region_id: str = "DefaultRegion"
    start_accept_send_request_time_stamp: int = 0
    store_reply_message_enable: bool = True

    reject_transaction_message: bool = False
    transaction_time_out: int = setting(6000, at_least=0)
    transaction_check_max: int = setting(15, at_least=0)
    transaction_check_interval: int = setting(60_000, at_least=1)

    long_polling_enable: bool = True
    short_polling_time_mills: int = setting(1000, at_least=0)
    pull_thread_pool_queue_capacity: int = setting(100_000, at_least=1)
    """How many pulls may wait for messages."""
    waiting_sends_max: int = setting(100_000, at_least=1)
    """How many sends may wait for the disk or a slave. Apache has no such setting."""
    notify_consumer_ids_changed_enable: bool = True
    flush_consumer_offset_interval: int = setting(5000, at_least=1)

    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = setting(6000, at_least=1)
    compressed_register: bool = False
    force_register: bool = True
    fetch_namesrv_addr_by_address_server: bool = False

    acl_enable: bool = False
    message_store_plug_in: str = ""
    config_black_list: str = "configBlackList;brokerConfigPath"
    broker_config_path: str = ""
    rocketmq_home: str = ""

    store: StoreSettings = field(default_factory=StoreSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    filters: FilterSettings = field(default_factory=FilterSettings)
    peers: PeerLimits = field(default_factory=PeerLimits)
    java: JavaSettings = field(default_factory=JavaSettings)
    limits: Limits = field(default_factory=Limits)

    @property
    def is_slave(self) -> bool:
        return self.replication.broker_role is BrokerRole.SLAVE

    @property
    def is_readable(self) -> bool:
        return bool(self.broker_permission & Permission.READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.broker_permission & Permission.WRITE)

    @property
    def name_servers(self) -> tuple[str, ...]:
        return tuple(address.strip() for address in self.namesrv_addr.split(";") if address.strip())

    @property
    def register_period_ms(self) -> int:
        shortest, longest = _REGISTER_PERIOD_MS
        return max(shortest, min(self.register_name_server_period, longest))

    @property
    def fast_port(self) -> int:
        """The port for all requests except pulls; slaves copy the topic table through it."""
        return self.listen_port + FAST_PORT_STEP

    @property
    def ha_port(self) -> int:
        return self.listen_port + HA_PORT_STEP

    @property
    def address(self) -> str:
        """The address that the name servers give to clients."""
        return _join(self.broker_ip1, self.listen_port)

    @property
    def ha_address(self) -> str:
        """The address that the name servers give to slaves."""
        return _join(self.broker_ip2, self.ha_port)

    @property
    def ha_master_address(self) -> str | None:
        """The configured replication address of the master; None: the name servers know it."""
        address = self.replication.ha_master_address or ""
        return address if len(address) >= HA_MASTER_ADDRESS_SIZE_MIN else None

    @property
    def store_folder(self) -> Path:
        return Path(self.store.store_path_root_dir).expanduser()

    @property
    def commit_log_folders(self) -> tuple[Path, ...]:
        """The configured folders of the commit log, else `commitlog` in the store's folder."""
        return _paths(self.store.store_path_commit_log) or (self.store_folder / "commitlog",)

    @property
    def read_only_log_folders(self) -> tuple[Path, ...]:
        """Folders whose files belong to the commit log, but that get no new files."""
        return _paths(self.store.read_only_commit_log_store_paths)

    @property
    def state_folder(self) -> Path:
        return self.store_folder / "config"

    @property
    def delay_levels(self) -> DelayLevels:
        return DelayLevels.parse(self.store.message_delay_level)

    def with_ports(self) -> BrokerConfig:
        """The same configuration, with a free port in place of `listenPort=0`."""
        return (
            self
            if self.listen_port
            else replace(self, listen_port=free_listen_port(self.bind_address))
        )


def read_config(
    pairs: Iterable[tuple[str, str]], source: str = "", environment: Mapping[str, str] = os.environ
) -> tuple[BrokerConfig, list[str]]:
    """Read a configuration from pairs of setting and value.

    :param source: the name of the file or command line, for error messages.
    :param environment: gives the name servers (`NAMESRV_ADDR`) if no pair does.
    :returns: the configuration, and warnings about pairs without effect.
    :raises ConfigError: a value is not allowed, or asks for a feature that this broker lacks.
    """
    config, warnings = read_settings(BrokerConfig, pairs, source)
    config = _completed(config, environment)
    check(config)
    if config.filters.enable_calc_filter_bit_map and not config.store.enable_consume_queue_ext:
        warnings.append(
            "enableCalcFilterBitMap has no effect without enableConsumeQueueExt: filter bits are"
            " stored in extension units of queue entries"
        )
    return config, warnings


def save_role(config: BrokerConfig) -> None:
    """Write role and id into the broker's configuration file, if it has one.

    All other lines stay as they are. The old file is kept as `.bak`.

    :raises OSError, ValueError: the file cannot be read or written.
    """
    if not config.broker_config_path:
        return
    path = Path(config.broker_config_path)
    text = path.read_text(encoding="utf-8")
    new = {"brokerRole": config.replication.broker_role.name, "brokerId": str(config.broker_id)}
    replace_with_backup(path, changed(text, new).encode())


def _completed(config: BrokerConfig, environment: Mapping[str, str]) -> BrokerConfig:
    """Fill in name and addresses that were not set. A master's id is 0 whatever was set."""
    return replace(
        config,
        namesrv_addr=config.namesrv_addr or environment.get("NAMESRV_ADDR", ""),
        broker_name=config.broker_name or socket.gethostname(),
        broker_ip1=config.broker_ip1 or own_address(),
        broker_ip2=config.broker_ip2 or own_address(),
        broker_id=config.broker_id if config.is_slave else MASTER_ID,
    )


def check(config: BrokerConfig) -> None:
    """Check a configuration.

    :raises ConfigError: settings contradict each other, or ask for a feature that is missing here.
    """
    if config.is_slave and config.broker_id <= MASTER_ID:
        raise ConfigError(
            f"brokerId={config.broker_id} with brokerRole=SLAVE: allowed is a number from 1"
        )
    if 0 < config.listen_port <= -FAST_PORT_STEP:
        raise ConfigError(
            f"listenPort={config.listen_port}: the ports listenPort - 2 and + 1 are needed, too;"
            " allowed are 0 and numbers from 3"
        )
    with _refusing(f"namesrvAddr={config.namesrv_addr}"):
        for address in config.name_servers:
            split_address(address)
    needed = min(config.store.message_size_max + _HEADER_ROOM, FRAME_SIZE_MAX)
    if config.peers.request_bytes_per_connection_max < needed:
        raise ConfigError(
            f"requestBytesPerConnectionMax={config.peers.request_bytes_per_connection_max}: a send"
            f" of maxMessageSize needs up to {needed} bytes"
        )
    with _refusing(f"messageDelayLevel={config.store.message_delay_level}"):
        _ = config.delay_levels
    with _refusing(
        "haAllowedAddresses", "{error}: allowed are addresses and networks, joined by ,"
    ):
        networks(config.replication.ha_allowed_addresses)
    with _refusing(
        f"deleteWhen={config.store.delete_when}", "allowed are hours from 0 to 23, joined by ;"
    ):
        _ = config.store.retention
    for name, is_asked_for, instead in _missing(config):
        if is_asked_for:
            raise ConfigError(f"{name}: {instead}")


@contextmanager
def _refusing(setting: str, problem: str = "{error}") -> Iterator[None]:
    """Turn a `ValueError` into a `ConfigError` that names the setting and the problem."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{setting}: {problem.format(error=error)}") from None


def _missing(config: BrokerConfig) -> tuple[tuple[str, bool, str], ...]:
    """Settings that must not be ignored silently, because this broker lacks their feature.

    :returns: per setting: its name, whether it is set, what to use instead.
    """
    store = config.store
    return (
        (
            "enableDLegerCommitLog",
            store.enable_d_leger_commit_log,
            "there is no DLedger here; use brokerRole and slaves",
        ),
        (
            "aclEnable",
            config.acl_enable,
            "there is no access control here yet, any client could use the broker",
        ),
        ("useTLS", config.java.use_tls, "there is no TLS here yet, connections would be readable"),
        ("enableLmq", store.enable_lmq, "there are no light queues here"),
        ("enableMultiDispatch", store.enable_multi_dispatch, "there are no light queues here"),
        ("messageStorePlugIn", bool(config.message_store_plug_in), "Java classes cannot be used"),
        (
            "fetchNamesrvAddrByAddressServer",
            config.fetch_namesrv_addr_by_address_server,
            "use namesrvAddr",
        ),
    )


def _paths(text: str | None) -> tuple[Path, ...]:
    """The folders in a setting that names several, separated by `,`.

    See docs/storage/files.md#several-directories-for-the-commit-log.
    """
    return tuple(
        Path(path.strip()).expanduser() for path in (text or "").split(",") if path.strip()
    )


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
