"""What the parts of a group member share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roquet.allocation import AllocationStrategy
from roquet.client._consume.offsets import OffsetStore, Start
from roquet.client._consume.prefetch import PrefetchBuffer
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._consume.statistics import MemberStatistics
from roquet.client._net.session import Session
from roquet.protocol.bodies.tables import Subscription


@dataclass(frozen=True)
class MemberContext:
    """What the parts of a group member share.

    `subscriptions` are by topic. `offsets` stores the group's offsets, `prefetch` gets the messages
    that are pulled. The other fields are parameters of `Consumer`.
    """

    session: Session
    group: str
    subscriptions: Mapping[str, Subscription]
    offsets: OffsetStore
    prefetch: PrefetchBuffer
    start: Start
    strategy: AllocationStrategy
    ordered: bool
    broadcast: bool
    batch_size: int
    limits: PrefetchLimits
    auto_commit: bool = True
    statistics: MemberStatistics = field(default_factory=MemberStatistics)
