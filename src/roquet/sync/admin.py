"""The blocking client for administration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from roquet.admin import cluster
from roquet.admin.cluster import TIMEOUT_MS
from roquet.client.config import ClientConfig, ClientOptions, NameServers
from roquet.protocol.bodies.tables import BrokerData
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.sync.blocking_user import BlockingUser, underneath

__all__ = ["AdminClient"]

T = TypeVar("T")


class AdminClient(BlockingUser[cluster.AdminClient]):
    """A client of a cluster for administration: asks name servers and brokers, blocking."""

    def __init__(
        self,
        name_server: NameServers | ClientConfig | BlockingUser[Any],
        **options: Unpack[ClientOptions],
    ) -> None:
        shared, owner = underneath(name_server)
        super().__init__(cluster.AdminClient(shared, **options), owner)

    def brokers(self) -> Mapping[str, BrokerData]:
        """All brokers by broker name, which a master and its slaves share."""
        return self._call(self._client.brokers)

    def ask(
        self,
        address: str,
        code: RequestCode,
        fields: Mapping[str, str] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Command:
        """Send a request to a broker and return its response."""
        return self._call(self._client.ask, address, code, fields, timeout_ms)

    def ask_for(self, address: str, code: RequestCode, kind: Callable[[Mapping[str, Any]], T]) -> T:
        """Send a request to a broker and parse the JSON body of its response with `kind`."""
        return self._call(self._client.ask_for, address, code, kind)
