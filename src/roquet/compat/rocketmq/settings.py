"""What producers and consumers share: their settings, and the use with `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from roquet.client._net.identity import local_address
from roquet.client.config import ClientConfig
from roquet.compat.rocketmq.exceptions import RocketMQException
from roquet.compat.rocketmq.texts import Text, text_of
from roquet.protocol.remoting.signing import Credentials


class ConnectionSettings(ABC):
    """The setters of producers and consumers. What is set counts from the next `start` on.

    :param group_id: the group.
    """

    def __init__(self, group_id: Text) -> None:
        self._group = text_of("group_id", group_id)
        self._name_server = ""
        self._instance_name = "DEFAULT"
        self._keys: tuple[str, str] | None = None

    def set_group(self, group_id: Text) -> None:
        """Set the group."""
        self._group = text_of("group_id", group_id)

    def set_name_server_address(self, addr: Text) -> None:
        """Set the name servers: `host:port`, several separated by semicolons."""
        self._name_server = text_of("addr", addr)

    def set_name_server_domain(self, domain: Text) -> None:
        """Name servers are not looked up by HTTP here, so this is refused.

        :raises RocketMQException: always.
        """
        raise RocketMQException(
            f"name server domain {domain!r}: name servers are not looked up by HTTP; "
            "give their addresses to set_name_server_address"
        )

    # the names of rocketmq-client-python 1.x
    set_namesrv_addr = set_name_server_address
    set_namesrv_domain = set_name_server_domain

    def set_session_credentials(
        self,
        access_key: Text,
        access_secret: Text,
        channel: Text = "",  # noqa: ARG002 - brokers ignore it
    ) -> None:
        """Set the keys that sign requests. `channel` is not sent: no broker of Apache asks for it.

        :param access_key: the account.
        :param access_secret: its secret.
        :param channel: the name of a cloud, as a rule `ALIYUN`.
        """
        self._keys = text_of("access_key", access_key), text_of("access_secret", access_secret)

    def set_instance_name(self, name: Text) -> None:
        """Set the name under which a broadcasting consumer keeps its offsets on this host.

        Each process of a host that broadcasts needs its own. To others it makes no difference: each
        has an id that no other client has.
        """
        self._instance_name = text_of("name", name)

    def _config(self, *, has_stable_id: bool = False) -> ClientConfig:
        """How to reach the cluster.

        :param has_stable_id: whether the client's id is the same after a restart.
        :raises ConfigError: a setting cannot be used.
        """
        return ClientConfig(
            self._name_server,
            Credentials(*self._keys) if self._keys else None,
            client_id=f"{local_address()}@{self._instance_name}" if has_stable_id else None,
        )

    @abstractmethod
    def start(self) -> None:
        """Connect to the cluster."""

    @abstractmethod
    def shutdown(self) -> None:
        """Close the connections."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
