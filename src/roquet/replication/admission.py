"""PURE: who may connect as a slave."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


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
