"""The address server: an HTTP server that tells clients the addresses of the name servers.

See docs/guide/client-settings.md#an-address-server.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

from roquet.common.callback_threads import CallbackThreads
from roquet.errors import CallTimeout, ConnectionClosed, PeerError
from roquet.transport.channels import split_address

TIMEOUT_S: Final = 3.0
SIZE_MAX: Final = 64 * 1024
"""More than so many bytes are no list of addresses."""


class AddressServer:
    """Asks an address server.

    :param url: its URL, as in a config.
    :param unit_name: the unit whose name servers are asked for.
    """

    def __init__(self, url: str, unit_name: str | None = None) -> None:
        self.url = url if unit_name is None else f"{url}-{unit_name}?nofix=1"
        # A daemon's thread: one that is stuck in the resolver does not hold up the process's end.
        self._threads = CallbackThreads("roquet-address-server")

    async def ask(self) -> list[str]:
        """The addresses of the name servers.

        :raises ConnectionClosed: the server cannot be reached, or refuses.
        :raises CallTimeout: it does not answer in time.
        :raises PeerError: its answer has no addresses.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._threads.call(partial(_get, self.url))
        except TimeoutError:
            raise CallTimeout(
                f"address server {self.url}: no answer within {TIMEOUT_S:g} s"
            ) from None
        except (OSError, HTTPException, ValueError) as error:
            raise ConnectionClosed(f"address server {self.url}: {error}") from error
        return _addresses(self.url, answer)

    def close(self) -> None:
        """End its thread, after what that does now."""
        self._threads.close()


def _get(url: str) -> bytes:
    try:
        with urlopen(url, timeout=TIMEOUT_S) as response:
            answer: bytes = response.read(SIZE_MAX)
            return answer
    except HTTPError as error:
        error.close()  # it has the connection
        raise


def _addresses(url: str, answer: bytes) -> list[str]:
    """The addresses in the first line of an answer."""
    line = answer.decode(errors="replace").strip().partition("\n")[0]
    addresses = [address for part in line.split(";") if (address := part.strip())]
    try:
        if not addresses:
            raise ValueError("it is empty")
        for address in addresses:
            split_address(address)
    except ValueError as error:
        raise PeerError(
            f"address server {url}: its answer is no list of name servers: {error}"
        ) from error
    return addresses
