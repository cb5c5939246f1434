"""What a name server's configuration file can say; names and defaults are Apache's (NamesrvConfig)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roquet.settings import setting
from roquet.transport.limits import PeerLimits

_NEVER_REMOTELY: Final = (
    *("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"),
    *("listenPort", "bindAddress"),
)
"""Files that would be written, and ports that would be opened. Apache's lets anybody set the latter, so that a name
server that was bound to a loopback address comes back on all of them."""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """`~` in a path is the home directory. A port of 0 lets the system choose one.

    `order_message_enable`: routes carry the order of an ordered topic's queues.
    `config_black_list`: settings, joined by `;`, that no remote update changes, beside those that never can be.
    """

    listen_port: int = setting(9876, at_least=0, at_most=65535)
    bind_address: str = "0.0.0.0"
    kv_config_path: str = "~/namesrv/kvConfig.json"
    config_store_path: str = "~/namesrv/namesrv.properties"
    order_message_enable: bool = False
    config_black_list: str = ";".join(_NEVER_REMOTELY[:3])
    rocketmq_home: str = ""
    product_env_name: str = "center"
    cluster_test: bool = False
    peers: PeerLimits = field(default_factory=PeerLimits)

    @property
    def protected(self) -> frozenset[str]:
        """The settings that a remote update must not name."""
        return frozenset(_NEVER_REMOTELY) | {name.strip() for name in self.config_black_list.split(";")}
