"""Which name server to ask, and asking it.

See docs/pitfalls.md#trap-51 and docs/protocol/producing.md#finding-a-broker.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable

from roquet.errors import CallTimeout, ConfigError, ConnectionClosed
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import split_address

TIMEOUT_MS = 3000

Call = Callable[[str, Command, int], Awaitable[Command]]
"""Address, request, timeout in ms -> the response."""


def split_addresses(text: str) -> list[str]:
    """The addresses in `host:port;host:port`.

    :raises ConfigError: there is none, or one has another form.
    """
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not addresses:
        raise ConfigError(f"name server {text!r}: give host:port, several separated by semicolons")
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(f"name server: {error}") from error
    return addresses


class NameServers:
    """Keeps: one server, picked at random, is asked as long as it answers; then the next in turn is."""

    def __init__(self, addresses: Iterable[str], call: Call, chance: random.Random) -> None:
        self.addresses = list(addresses)
        chance.shuffle(self.addresses)
        self._call = call
        self._chosen = 0

    async def ask(self, request: Command) -> Command:
        """The response of the first name server that gives one, of whatever code.

        :raises ConnectionClosed: none can be reached.
        :raises CallTimeout: none answers in time.
        """
        for _ in self.addresses[1:]:
            asked = self._chosen
            try:
                return await self._call(self.addresses[asked], request, TIMEOUT_MS)
            except (ConnectionClosed, CallTimeout):
                self._move_on_from(asked)
        asked = self._chosen
        try:
            return await self._call(self.addresses[asked], request, TIMEOUT_MS)
        except (ConnectionClosed, CallTimeout) as error:
            self._move_on_from(asked)
            error.add_note(f"name servers asked: {'; '.join(self.addresses)}")
            raise

    def _move_on_from(self, asked: int) -> None:
        """Unless another call, which failed as well, did so already."""
        if self._chosen == asked:
            self._chosen = (asked + 1) % len(self.addresses)
