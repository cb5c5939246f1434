"""PURE: a limited number of connections is shared among addresses, so that no address can keep all others out."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_network


def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 of an IPv6 address, since who has one of these has all.

    :raises ValueError: `host` is no address.
    """
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, 64), strict=False))


def crowds(counts: Mapping[str, int], newcomer: str) -> tuple[list[str], bool]:
    """The networks that have most places, and whether one of them owes a place to `newcomer`.

    It does when it has at least two more: fewer, and the next one from there could take the place back.
    """
    most = max(counts.values(), default=0)
    return [network for network, count in counts.items() if count == most], most >= counts.get(newcomer, 0) + 2
