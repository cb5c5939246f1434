"""PURE: who may connect as a slave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from roquet.common.shared_places import Shares

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One connection of a slave; `network` as `network_of` says it.

    `stalled_ms`: for so long it has acknowledged nothing more, though the log has more.
    """

    network: str
    has_spoken: bool
    stalled_ms: int
    acked: int


@dataclass(frozen=True, slots=True)
class Admission:
    """Slaves from `networks`, from anywhere where there are none, at most `connections_max` at a time."""

    networks: Networks = ()
    connections_max: int = 64

    def why_not(self, host: str) -> str:
        """Why none from `host` may come; empty when it may."""
        if self.networks and not self._is_among(host):
            return "its address is not one of haAllowedAddresses"
        return ""

    def who_goes(self, places: Sequence[Place], newcomer: str, stalled_ms_max: int) -> int | None:
        """Which of `places`, in the order they came, goes for one from the network `newcomer`; None: the newcomer does.

        The networks that have most places give one. It is a place that is of least use: one that has said nothing
        (slaves speak at once, or after 5 s), then one that stands still, then the one that has least. One that is of
        use goes only where its network has two places more than the newcomer's: else strangers with many addresses
        could push a slave out.
        """
        shares = Shares(place.network for place in places)
        of_them = [index for index, place in enumerate(places) if place.network in shares.crowds]
        if not of_them:
            return None

        def use(index: int) -> tuple[bool, bool, int]:
            place = places[index]
            return place.has_spoken, place.stalled_ms <= stalled_ms_max, place.acked

        least = min(of_them, key=use)
        return least if shares.owe(newcomer) or not all(use(least)[:2]) else None

    def _is_among(self, host: str) -> bool:
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)


def networks(text: str) -> Networks:
    """Addresses and networks (`10.0.1.0/24`), joined by `,` or `;`.

    :raises ValueError: one of them is neither.
    """
    parts = (part.strip() for part in text.replace(";", ",").split(","))
    return tuple(ip_network(part) for part in parts if part)
