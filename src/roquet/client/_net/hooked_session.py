"""A session that tells hooks of its requests."""

from __future__ import annotations

from collections.abc import Sequence

from roquet.client._net.hooks import CallHooks, is_any
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.protocol.remoting.command import Command


def session_of(config: ClientConfig) -> Session:
    """The session of a config. Requests that no hook looks at cost nothing more."""
    is_hooked = is_any(config.hooks, "before_call", "after_call")
    return HookedSession(config) if is_hooked else Session(config)


class HookedSession(Session):
    """A session that tells the hooks of its config of each request."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self._hooks = CallHooks(config.hooks, self.client_id)

    async def call(self, address: str, request: Command, timeout_ms: int) -> Command:
        with self._hooks.calling(address, request.code) as event:
            response = await super().call(address, request, timeout_ms)
            event.response_code = response.code
        return response

    async def call_all(
        self, address: str, requests: Sequence[Command], timeout_ms: int
    ) -> list[Command]:
        if not requests:
            return await super().call_all(address, requests, timeout_ms)
        with self._hooks.calling(address, requests[0].code, len(requests)) as event:
            responses = await super().call_all(address, requests, timeout_ms)
            event.response_code = responses[-1].code
        return responses

    async def notify(self, address: str, request: Command, timeout_ms: int) -> None:
        with self._hooks.calling(address, request.code, is_one_way=True):
            await super().notify(address, request, timeout_ms)
