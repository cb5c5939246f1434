"""What went over the connections of a client, by address."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from roquet.transport.connection import Connection

if TYPE_CHECKING:
    from roquet.client.metrics import ConnectionMetrics, ConnectionState


class AddressTraffic:
    """What went over the connections to each address, those that ended included."""

    def __init__(self) -> None:
        self._opened: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def opened(self, address: str, former: Connection | None) -> None:
        """Count a connection that was opened in place of a former one."""
        self._opened[address] += 1
        if former is not None:
            self._sent[address] += former.sent_bytes
            self._received[address] += former.received_bytes

    def metrics(
        self,
        address: str,
        connection: Connection | None,
        *,
        is_name_server: bool,
        is_silent: bool,
    ) -> ConnectionMetrics:
        """The metrics of an address.

        :param connection: the last one.
        :param is_silent: whether the last request had no answer.
        """
        from roquet.client.metrics import ConnectionMetrics

        if connection is None:
            return ConnectionMetrics(is_name_server, "silent" if is_silent else "closed")
        open_or_closed: ConnectionState = "open" if connection.is_open else "closed"
        return ConnectionMetrics(
            is_name_server,
            "silent" if is_silent else open_or_closed,
            len(connection.calls.waiting),
            connection.unread,
            self._opened[address],
            self._sent[address] + connection.sent_bytes,
            self._received[address] + connection.received_bytes,
        )
