"""A running cluster: the brokers that its name servers list, and requests to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from roquet.client._net.session_user import SessionUser
from roquet.protocol.bodies.tables import BrokerData, ClusterInfo, parse
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

TIMEOUT_MS: Final = 5000

T = TypeVar("T")


class AdminClient(SessionUser):
    """A client of a cluster for administration: asks name servers and brokers."""

    async def brokers(self) -> Mapping[str, BrokerData]:
        """All brokers by broker name, which a master and its slaves share.

        :raises ConnectionClosed, CallTimeout: no name server answers.
        """
        self._require_open()
        answer = await self._session.name_servers.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        return parse(checked(answer, "the name server").body, ClusterInfo.from_json).brokers

    async def ask(
        self,
        address: str,
        code: RequestCode,
        fields: Mapping[str, str] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Command:
        """Send a request to a broker and return its response.

        :param fields: the header fields.
        :param timeout_ms: the time in ms, including that for connecting.
        :raises ResponseError: the broker refuses; the remark says why.
        :raises ConnectionClosed, CallTimeout: the broker does not answer.
        """
        self._require_open()
        return checked(
            await self._session.call(address, Command(code, dict(fields or {})), timeout_ms),
            address,
        )

    async def ask_for(
        self, address: str, code: RequestCode, kind: Callable[[Mapping[str, Any]], T]
    ) -> T:
        """Send a request to a broker and parse the JSON body of its response with `kind`.

        Raises as `ask`.
        """
        return parse((await self.ask(address, code)).body, kind)
