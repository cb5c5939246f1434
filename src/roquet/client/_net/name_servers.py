"""Calls to the name servers of a client.

See docs/pitfalls.md#trap-51 and docs/protocol/producing.md#finding-a-broker.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from roquet.errors import CallTimeout, ConfigError, ConnectionClosed
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command

TIMEOUT_MS = 3000
_ALL_HAVE: Final = frozenset(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    )
)
"""What name servers of all releases answer, and brokers do not know."""

T = TypeVar("T")

Call = Callable[[str, Command, int], Awaitable[Command]]
"""Address, request, timeout in ms -> the response."""


class NameServers:
    """The name servers of a client. One of them, chosen at random, is asked as long as it answers.

    When it does not answer, the next one is chosen.
    """

    def __init__(self, addresses: Iterable[str], call: Call, chance: random.Random) -> None:
        self.addresses: list[str] = []
        self._chance = chance
        self._call = call
        self._chosen = 0
        self.replace(addresses)

    def replace(self, addresses: Iterable[str]) -> bool:
        """Ask these name servers from now on. Returns whether there are others than before.

        The list stays the same object.
        """
        new = list(dict.fromkeys(addresses))
        if set(new) == set(self.addresses):
            return False
        self._chance.shuffle(new)
        self.addresses[:] = new
        self._chosen = 0
        return True

    async def ask(self, request: Command) -> Command:
        """Ask until a name server answers; return the response, whatever its code is.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers in time.
        :raises ConfigError: it is a broker that answers.
        """

        async def ask(address: str) -> Command:
            response = await self._call(address, request, TIMEOUT_MS)
            is_unknown = response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            if is_unknown and request.code in _ALL_HAVE:
                raise ConfigError(
                    f"name_server: {address} is no name server but a broker, as it seems: "
                    "give the name server's address, often port 9876; it knows the brokers"
                )
            return response

        return await self.first(ask)

    async def first(self, ask: Callable[[str], Awaitable[T]]) -> T:
        """The result of `ask` for the chosen name server, or for the first one that answers.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers in time.
        """
        failure: Exception | None = None
        for _ in list(self.addresses):
            asked = self._chosen
            try:
                return await ask(self.addresses[asked])
            except (ConnectionClosed, CallTimeout) as error:
                self._move_on_from(asked)
                failure = error
        assert failure is not None, "there is at least one name server"
        failure.add_note(f"name servers asked: {'; '.join(self.addresses)}")
        raise failure

    def _move_on_from(self, asked: int) -> None:
        """Choose the next name server, unless a concurrent call has done so already."""
        if self._chosen == asked:
            self._chosen = (asked + 1) % len(self.addresses)
