"""PURE: shares a limited number of places, so that no holder can keep all others out."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from ipaddress import IPv6Address, ip_network
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def network_of(host: str) -> str:
    """The network that counts as one holder: an IPv4 address, or the /64 of an IPv6 address.

    A host with an IPv6 address usually has its whole /64.

    :raises ValueError: `host` is not an IP address.
    """
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, 64), strict=False))


class Shares(Generic[K]):
    """Counts the places of each holder, such as a network. All calls take constant time.

    Invariant: `_counts` has the holders of at least one place. `_holders[n]` are those of n places,
    in the order in which they reached n; it is never empty. `_most` is the largest n.
    """

    def __init__(self, holders: Iterable[K] = ()) -> None:
        self._counts: dict[K, int] = {}
        self._holders: dict[int, dict[K, None]] = {}
        self._most = 0
        for holder in holders:
            self.add(holder)

    def add(self, holder: K) -> None:
        """Count one more place of `holder`."""
        self._set(holder, self.count(holder) + 1)

    def drop(self, holder: K, count: int = 1) -> None:
        """Count `count` fewer places of `holder`."""
        self._set(holder, self.count(holder) - count)

    def count(self, holder: K) -> int:
        return self._counts.get(holder, 0)

    @property
    def largest(self) -> Collection[K]:
        """The holders with the most places."""
        return self._holders.get(self._most, {}).keys()

    def largest_must_yield_to(self, newcomer: K) -> bool:
        """Whether each of `largest` has to give a place to `newcomer`.

        It has to if it has at least two more. With one more, it could take the place back next.
        """
        return self._most >= self.count(newcomer) + 2

    def _set(self, holder: K, count: int) -> None:
        before = self._counts.get(holder)
        if before is not None:
            same = self._holders[before]
            if len(same) > 1:
                del same[holder]
            else:
                del self._holders[before]
        if count:
            self._counts[holder] = count
            self._holders.setdefault(count, {})[holder] = None
            if count > self._most:
                self._most = count
        else:
            del self._counts[holder]
        while self._most and self._most not in self._holders:
            self._most -= 1
