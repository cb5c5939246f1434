"""Servers that do not answer: each is told of once when it goes, and once when it is back."""

from __future__ import annotations

import logging
from collections.abc import Container

from roquet.common.limited_log import LimitedLog
from roquet.errors import CallTimeout, ConnectionClosed

log = logging.getLogger(__name__)


def is_outage(error: BaseException) -> bool:
    """Whether `error` says no more than that a server did not answer, which the log has already."""
    return isinstance(error, ConnectionClosed | CallTimeout)


def level_of(error: BaseException, level: int = logging.WARNING) -> int:
    """The log level of what failed because of `error`: DEBUG if the log says already why."""
    return min(level, logging.DEBUG) if is_outage(error) else level


class Outages:
    """The brokers, name servers and address servers that do not answer now.

    A whole client finds that out many times: with each send, the pulls of each queue, heartbeats,
    offsets. One that comes and goes is told of once in a minute.

    :param name_servers: the addresses of name servers; all others are brokers.
    """

    def __init__(self, name_servers: Container[str]) -> None:
        self._name_servers = name_servers
        self._limited_log = LimitedLog(log)
        self.away: set[str] = set()
        """Addresses."""

    def failed(self, address: str, error: Exception) -> None:
        """Called for each call that had no answer."""
        if address not in self.away:
            self.away.add(address)
            self._limited_log.warning(
                f"away {address}",
                "%s does not answer: address=%s error=%s",
                self._kind(address),
                address,
                error,
            )

    def answered(self, address: str) -> None:
        """Called for each answer while a server is away."""
        if address in self.away:
            self.away.remove(address)
            kind = f"back {address}"
            text = "%s answers again: address=%s"
            self._limited_log.tell(logging.INFO, kind, text, self._kind(address), address)

    def _kind(self, address: str) -> str:
        if "://" in address:
            return "address server"
        return "name server" if address in self._name_servers else "broker"
