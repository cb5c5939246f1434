"""What the parts of a group member share."""

from __future__ import annotations

from dataclasses import dataclass, field

from roquet.allocation import AllocationStrategy
from roquet.client._consume.offsets import OffsetStore, Start
from roquet.client._consume.prefetch import PrefetchBuffer
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._consume.read_from import ReadFrom
from roquet.client._consume.statistics import MemberStatistics
from roquet.client._consume.topic_patterns import TopicPatterns
from roquet.client._net.session import Session
from roquet.client.rebalance_listener import RebalanceListener
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.compression import UNCOMPRESSED_MAX


@dataclass(frozen=True)
class MemberContext:
    """What the parts of a group member share.

    `subscriptions` are by topic; they change while the member runs. `offsets` stores the group's
    offsets, `prefetch` gets the messages that are pulled. The other fields are parameters of
    `Consumer`.
    """

    session: Session
    group: str
    subscriptions: dict[str, Subscription]
    offsets: OffsetStore
    prefetch: PrefetchBuffer
    start: Start
    strategy: AllocationStrategy
    ordered: bool
    broadcast: bool
    batch_size: int
    limits: PrefetchLimits
    auto_commit: bool = True
    patterns: TopicPatterns = field(default_factory=TopicPatterns)
    listener: RebalanceListener | None = None
    read_from: ReadFrom = "any"
    pull_interval_ms: int = 0
    persist_offsets_ms: int = 5000
    uncompressed_max: int = UNCOMPRESSED_MAX
    statistics: MemberStatistics = field(default_factory=MemberStatistics)
