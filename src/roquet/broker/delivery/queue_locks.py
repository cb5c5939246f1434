"""PURE: queue locks for orderly consumers: leases that expire unless renewed.

See docs/broker/consumers.md#queue-locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.common.steps import Steps, in_parts

LEASE_MS: Final = 60_000
_LEASES: Final = 256
"""Leases that one step of `drop_expired` checks."""

Place: TypeAlias = tuple[str, str, int]
"""A queue: topic, broker name and queue id.

A tuple, because a request for 10,000 queues is decided in one step: 2 ms, but 10 ms with the hash
and comparison of a Python class.
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """A client's lock on one queue."""

    client_id: str
    renewed_ms: float

    def is_free_for(self, client_id: str, now_ms: float) -> bool:
        """Whether this client may take or renew the lease.

        Clients with the same id share a lease: the broker cannot tell them apart
        (docs/pitfalls.md#trap-32).
        """
        return self.client_id == client_id or now_ms - self.renewed_ms > LEASE_MS


class LeaseTable:
    """The leases of all groups; times are ms of a monotonic clock.

    Invariant: no queue is leased to two clients of one group at the same time; `count` is the
    number of leases of all groups.

    :param limits: of the number of leases.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._groups: dict[str, dict[Place, Lease]] = {}
        self.count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[Place], now_ms: float
    ) -> list[Place]:
        """Lease to this client the queues that no other client has leased, and renew its leases.

        :returns: those of `queues` that the client has leased now, in their order, without
            duplicates.
        :raises Refused: there would be too many leases; none is given.
        """
        leases = self._groups.get(group, {})
        held = {
            queue: None
            for queue in queues
            if (lease := leases.get(queue)) is None or lease.is_free_for(client_id, now_ms)
        }
        count = self.count + len(held.keys() - leases.keys())
        refuse_beyond(count, self._limits.lock_nums_max, "locked queues", "lockNumsMax")
        self.count = count
        if held:
            self._groups[group] = leases
        leases.update(dict.fromkeys(held, Lease(client_id, now_ms)))
        return list(held)

    def unlock(self, group: str, client_id: str, queues: Iterable[Place]) -> None:
        """End this client's leases of `queues`; other clients' leases stay."""
        leases = self._groups.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]
                self.count -= 1
        if not leases:
            self._groups.pop(group, None)

    def drop_expired(self, now_ms: float) -> Steps[None]:
        """Delete expired leases: those of deleted queues would stay for ever."""
        for group in list(self._groups):
            for part in in_parts(list(self._groups.get(group, ())), _LEASES):
                self._drop(group, part, now_ms)
                yield

    def _drop(self, group: str, queues: Iterable[Place], now_ms: float) -> None:
        leases = self._groups.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and now_ms - lease.renewed_ms > LEASE_MS:
                del leases[queue]
                self.count -= 1
        if not leases:
            self._groups.pop(group, None)
