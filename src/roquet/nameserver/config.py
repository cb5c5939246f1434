"""What a name server's configuration file can say; names and defaults are Apache's (NamesrvConfig)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roquet.common.settings import setting
from roquet.transport.limits import PeerLimits

REMOTELY: Final = frozenset({"orderMessageEnable", "productEnvName", "clusterTest"})
"""What an update from afar may change: what routes say. Who runs the process decides the rest: which files it writes,
which ports it opens, and the bounds that keep one client from taking what belongs to all. Apache's has a list of what
may not be changed, to which files were added one by one; anybody may set its ports and thread pools."""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """`~` in a path is the home directory. A port of 0 lets the system choose one.

    `order_message_enable`: routes carry the order of an ordered topic's queues.
    `config_black_list`: settings, joined by `;`, that no remote update changes, beside all but `REMOTELY`.
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
        """Whether an update from afar may name this setting."""
        return name in REMOTELY and name not in {
            black.strip() for black in self.config_black_list.split(";")
        }
