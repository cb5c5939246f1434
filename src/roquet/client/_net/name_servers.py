"""Calls to the name servers of a client.

See docs/pitfalls.md#trap-51 and docs/protocol/producing.md#finding-a-broker.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.command import Command

TIMEOUT_MS = 3000

T = TypeVar("T")

Call = Callable[[str, Command, int], Awaitable[Command]]
"""Address, request, timeout in ms -> the response."""


class NameServers:
    """The name servers of a client. One of them, chosen at random, is asked as long as it answers.

    When it does not answer, the next one is chosen.
    """

    def __init__(self, addresses: Iterable[str], call: Call, chance: random.Random) -> None:
        self.addresses = list(addresses)
        chance.shuffle(self.addresses)
        self._call = call
        self._chosen = 0

    async def ask(self, request: Command) -> Command:
        """Ask until a name server answers; return the response, whatever its code is.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers in time.
        """
        return await self.first(lambda address: self._call(address, request, TIMEOUT_MS))

    async def first(self, ask: Callable[[str], Awaitable[T]]) -> T:
        """The result of `ask` for the chosen name server, or for the first one that answers.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers in time.
        """
        failure: Exception | None = None
        for _ in self.addresses:
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
