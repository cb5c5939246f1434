"""PURE: decides which connections a master accepts as slaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from roquet.common.shared_places import Shares

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An open connection that may be closed to make room for another.

    :param network: the result of `network_of` for the peer's address.
    :param has_reported: whether the peer has sent a slave report.
    :param stalled_ms: ms since the peer last acknowledged more, 0 if it has the whole log.
    :param acked: the physical offset that the peer acknowledged last.
    """

    network: str
    has_reported: bool
    stalled_ms: int
    acked: int


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules by which a master accepts connections of slaves.

    :param networks: addresses that may connect (haAllowedAddresses); any address if empty.
    :param connections_max: the number of connections at a time (haConnectionsMax).
    """

    networks: Networks = ()
    connections_max: int = 64

    def allows(self, host: str) -> bool:
        """Return whether `host` may connect."""
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return not self.networks or any(address in network for network in self.networks)

    def to_close(
        self, connections: Sequence[Candidate], newcomer: str, stalled_ms_max: int
    ) -> int | None:
        """Return the index of the connection that is closed to make room for a new one.

        The networks with most connections lose one. The least useful connection is closed: first
        one that has sent no report (Apache's slave reports 5 s after it connects, ours at once),
        then one that is stalled, then the one with the lowest acknowledged offset. A useful
        connection is closed only if its network has at least two connections more than the
        newcomer's. Otherwise strangers with many addresses could push a slave out.

        :param connections: the open connections, oldest first.
        :param newcomer: the network of the new connection.
        :param stalled_ms_max: a connection that acknowledged nothing for longer is not useful.
        :returns: an index into `connections`, or None if the new connection is refused.
        """
        shares = Shares(connection.network for connection in connections)
        most = [
            index
            for index, connection in enumerate(connections)
            if connection.network in shares.largest
        ]
        if not most:
            return None

        def use(index: int) -> tuple[bool, bool, int]:
            connection = connections[index]
            return (
                connection.has_reported,
                connection.stalled_ms <= stalled_ms_max,
                connection.acked,
            )

        least = min(most, key=use)
        return least if shares.largest_must_yield_to(newcomer) or not all(use(least)[:2]) else None


def networks(text: str) -> Networks:
    """Parse addresses and networks (`10.0.1.0/24`) that are separated by `,` or `;`.

    :raises ValueError: a part is neither an address nor a network.
    """
    parts = (part.strip() for part in text.replace(";", ",").split(","))
    return tuple(ip_network(part) for part in parts if part)
