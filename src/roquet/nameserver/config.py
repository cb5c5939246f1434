"""Settings of a name server; names and defaults are those of Apache's NamesrvConfig."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roquet.common.settings import setting
from roquet.transport.limits import PeerLimits

REMOTELY: Final = frozenset({"orderMessageEnable", "productEnvName", "clusterTest"})
"""Settings that UPDATE_NAMESRV_CONFIG may change: those that affect routes.

Files, ports and limits are for the operator only: a client that set them could harm all others.
Apache has a list of settings that may not be changed instead, to which file settings were added
one by one; any client may set its ports and thread pools.
"""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """Settings of one name server.

    `~` in a path is the home directory. With port 0 the system chooses a port.

    `order_message_enable`: routes include the queue order of ordered topics.
    `config_black_list`: settings of `REMOTELY`, joined by `;`, that no request may change either.
    """

    listen_port: int = setting(9876, at_least=0, at_most=65535)
    bind_address: str = "0.0.0.0"
    kv_config_path: str = "~/namesrv/kvConfig.json"
    config_store_path: str = "~/namesrv/namesrv.properties"
    order_message_enable: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    rocketmq_home: str = ""
    product_env_name: str = "center"
    cluster_test: bool = False
    peers: PeerLimits = field(default_factory=PeerLimits)

    def is_remote(self, name: str) -> bool:
        """Whether UPDATE_NAMESRV_CONFIG may change this setting."""
        return name in REMOTELY and name not in {
            black.strip() for black in self.config_black_list.split(";")
        }
