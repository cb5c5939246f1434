"""What all clients have: a config, and a session that is open while the client is entered."""

from __future__ import annotations

from typing import Self, Unpack

from roquet.client._net.session import Session
from roquet.client.config import ClientConfig, ClientOptions


class Client:
    """The base class of producers, consumers and `AdminClient`. Use it with `async with`.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param options: parameters of `ClientConfig`; they replace those of a given config.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    def __init__(self, name_server: str | ClientConfig, **options: Unpack[ClientOptions]) -> None:
        self.config = ClientConfig.of(name_server, **options)
        self._session = Session(self.config)

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.__aexit__()
