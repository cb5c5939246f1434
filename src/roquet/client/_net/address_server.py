"""The address server: an HTTP server that tells clients the addresses of the name servers.

See docs/guide/client-settings.md#an-address-server.
"""

from __future__ import annotations

import asyncio
import time
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
_PIECE_SIZE: Final = 4096


class AddressServer:
    """Asks an address server.

    Invariant: at most one request is under way, so that a server that never ends its answer costs
    one thread.

    :param url: its URL, as in a config.
    :param unit_name: the unit whose name servers are asked for.
    """

    def __init__(self, url: str, unit_name: str | None = None) -> None:
        self.url = url if unit_name is None else f"{url}-{unit_name}?nofix=1"
        # A daemon's thread: one that is stuck in the resolver does not hold up the process's end.
        self._threads = CallbackThreads("roquet-address-server")
        self._asking: asyncio.Future[bytes] | None = None

    async def ask(self) -> list[str]:
        """The addresses of the name servers. It waits for a request that is still under way.

        :raises ConnectionClosed: the server cannot be reached, or refuses.
        :raises CallTimeout: it does not answer in time.
        :raises PeerError: its answer has no addresses.
        """
        if self._asking is None:
            self._asking = self._threads.call(partial(_get, self.url))
            self._asking.add_done_callback(self._ended)
        asking = self._asking
        await asyncio.wait([asking], timeout=TIMEOUT_S)
        if not asking.done():
            raise _late(self.url)
        try:
            answer = asking.result()
        except TimeoutError:
            raise _late(self.url) from None
        except (OSError, HTTPException, ValueError) as error:
            raise ConnectionClosed(f"address server {self.url}: {error}") from error
        return _addresses(self.url, answer)

    def _ended(self, asking: asyncio.Future[bytes]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # nobody may wait for it any more

    def close(self) -> None:
        """End its thread, after what that does now."""
        self._threads.close()


def _late(url: str) -> CallTimeout:
    return CallTimeout(f"address server {url}: no answer within {TIMEOUT_S:g} s")


def _get(url: str) -> bytes:
    """The answer of a server. The timeout of `urlopen` is that of one read, not of all.

    :raises TimeoutError: the answer takes too long.
    """
    deadline = time.monotonic() + TIMEOUT_S
    answer = b""
    try:
        with urlopen(url, timeout=TIMEOUT_S) as response:
            while len(answer) < SIZE_MAX and (piece := response.read1(_PIECE_SIZE)):
                answer += piece
                if time.monotonic() >= deadline:
                    raise TimeoutError
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
