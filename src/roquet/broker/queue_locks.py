"""PURE: which client may consume a queue in order: leases that end unless renewed.

See docs/broker/consumers.md#queue-locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from roquet.broker.limits import Limits, refuse_beyond
from roquet.protocol.message import MessageQueue
from roquet.steps import Steps

LEASE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Lease:
    client_id: str
    renewed_ms: float

    def is_free_for(self, client_id: str, now_ms: float) -> bool:
        """Clients with the same id share a lease: they cannot be told apart
        (docs/pitfalls.md#trap-32).
        """
        return self.client_id == client_id or now_ms - self.renewed_ms > LEASE_MS


class LeaseTable:
    """The leases of all groups; times are those of a clock that nobody sets.

    Keeps: no queue is leased to two clients of one group at the same time; `count` is how many leases there are.

    :param limits: how many leases clients may have.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._groups: dict[str, dict[MessageQueue, Lease]] = {}
        self.count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: float
    ) -> frozenset[MessageQueue]:
        """Lease to this client what nobody else holds, renew what it holds; all that it holds of `queues` now.

        :raises Refused: there would be too many leases; none of these is given.
        """
        leases = self._groups.get(group, {})
        held = frozenset(
            queue for queue in queues if (lease := leases.get(queue)) is None or lease.is_free_for(client_id, now_ms)
        )
        count = self.count + sum(queue not in leases for queue in held)
        refuse_beyond(count, self._limits.lock_nums_max, "locked queues", "lockNumsMax")
        self.count = count
        if held:
            self._groups[group] = leases
        lease = Lease(client_id, now_ms)
        leases.update((queue, lease) for queue in held)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what this client holds of `queues`; the leases of others stay."""
        leases = self._groups.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]
                self.count -= 1
        if not leases:
            self._groups.pop(group, None)

    def drop_expired(self, now_ms: float) -> Steps[None]:
        """Forget leases that ended, so that queues which are gone do not stay here for ever."""
        for group in list(self._groups):
            yield
            leases = self._groups.get(group, {})
            kept = {queue: lease for queue, lease in leases.items() if now_ms - lease.renewed_ms <= LEASE_MS}
            self.count -= len(leases) - len(kept)
            if kept:
                self._groups[group] = kept
            else:
                self._groups.pop(group, None)
