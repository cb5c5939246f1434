"""PURE: what a client has done and has at hand, as numbers for a monitoring system.

Other modules of the client import this when they are asked for metrics, because it takes some ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Final, Literal, Self, TypeAlias

from roquet.client.counters import BOUNDS_MS
from roquet.protocol.records.message import MessageQueue

__all__ = [
    "ClientMetrics",
    "ConnectionMetrics",
    "ConsumerMetrics",
    "LatencyHistogram",
    "ProducerMetrics",
    "PullConsumerMetrics",
    "QueueMetrics",
    "TopicMetrics",
]

ConnectionState: TypeAlias = Literal["open", "silent", "closed"]


class _Metrics:
    """Numbers that can be added. A field that is a text is the same in both."""

    __slots__ = ()

    def plus(self, other: Self) -> Self:
        """Both together."""
        mine: tuple[Any, ...] = fields(self)  # type: ignore[arg-type]
        return type(self)(
            *(_sum(getattr(self, each.name), getattr(other, each.name)) for each in mine)
        )


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, _Metrics):
        return one.plus(other)
    if isinstance(one, Mapping):
        both = {name: _sum(one[name], other[name]) for name in one.keys() & other.keys()}
        return {**one, **other, **both}
    if isinstance(one, tuple):
        return tuple(map(_sum, one, other))
    return one + other if isinstance(one, int | float) else other


@dataclass(frozen=True, slots=True)
class LatencyHistogram(_Metrics):
    """How often a latency was in each bucket.

    - `counts`: one per bucket. The upper ends of the buckets, in ms, are `bounds_ms`, each
      included; the last bucket has no end.
    - `total_ms`: the sum of all latencies.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    total_ms: float = 0.0

    @property
    def bounds_ms(self) -> tuple[float, ...]:
        """The upper ends of all buckets but the last."""
        return BOUNDS_MS

    @property
    def count(self) -> int:
        """How many latencies there were."""
        return sum(self.counts)

    def quantile_ms(self, part: float) -> float:
        """The upper end of the bucket that has the quantile. 0 if there was no latency.

        :param part: 0.5 for the median, 0.99 for what one of 100 exceeds.
        """
        wanted = part * self.count
        seen = 0
        for bound, count in zip((*BOUNDS_MS, inf), self.counts, strict=True):
            seen += count
            if seen and seen >= wanted:
                return bound
        return 0.0


@dataclass(frozen=True, slots=True)
class ProducerMetrics(_Metrics):
    """The sends of a producer group.

    Since the first producer was created:

    - `sent`: messages that brokers stored. `sent_bytes`: their bodies, as they were sent.
    - `sent_one_way`: messages that were sent one-way.
    - `failures`: messages whose send failed, by the name of the error. Those whose arguments cannot
      be used are not counted, nor those whose queue function raised. A send that is cancelled
      counts as `CancelledError`, and not as sent, though the message may be stored. One that has no
      time, as with `timeout_ms=0`, counts as `CallTimeout`.
    - `retries`: tries after the first.
    - `latency`: of the requests that succeeded, with all their tries and the wait for a slot. A
      batch is one request, and so are sends that `linger_ms` gathered.

    Now:

    - `in_flight`: requests that wait for an answer; with `max_in_flight=1` also one that waits for
      its next try. `waiting`: those that wait because `max_in_flight` to their broker are
      in flight.
    """

    group: str
    sent: int = 0
    sent_bytes: int = 0
    sent_one_way: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    latency: LatencyHistogram = LatencyHistogram()
    in_flight: int = 0
    waiting: int = 0

    def ended(self) -> ProducerMetrics:
        """What remains when the producer is closed."""
        return replace(self, in_flight=0, waiting=0)

    def nameless(self) -> ProducerMetrics:
        """What counts for the sum of all groups."""
        return replace(self, group="")


@dataclass(frozen=True, slots=True)
class TopicMetrics(_Metrics):
    """What a member of a consumer group did with a topic since it was created.

    - `received`: messages that its pulls brought. `received_bytes`: their bodies, compressed.
    - `delivered`: messages that the application got.
    - `acknowledged`: messages that were consumed. `failed`: those that are to come again, because
      of an exception, of `retry`, or because they were not settled in time.
    - `sent_back`: failed messages that a broker took, to deliver them again or into the dead letter
      topic. An ordered consumer keeps those that it delivers again itself.
    - `timed`: one of eight messages is timed. `timed_ms`: the time that these took the application,
      together.
    """

    received: int = 0
    received_bytes: int = 0
    delivered: int = 0
    acknowledged: int = 0
    failed: int = 0
    sent_back: int = 0
    timed: int = 0
    timed_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """A queue that is assigned to a member of a consumer group.

    - `position`: the offset of the next message that will be delivered.
    - `consumer_offset`: all messages before it are settled.
    - `committed`: the offset that this member stored last; None if it has not stored one. Pulls
      carry newer ones to the broker.
    - `lag`: messages at or after `consumer_offset`, by the end of the queue that the last pull
      told; None if no pull has told it.
    - `prefetched`: messages that were pulled and are not settled. `prefetched_bytes`: their bodies.
    - `last_pull_time_ms`: when the last pull was answered, in ms since 1970; or when the queue was
      assigned. An idle queue is pulled every 15 s, and a paused or full one is not pulled.
    - `is_paused`: whether the application has paused it.
    """

    position: int
    consumer_offset: int
    committed: int | None
    lag: int | None
    prefetched: int
    prefetched_bytes: int
    last_pull_time_ms: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class ConsumerMetrics(_Metrics):
    """A member of a consumer group.

    - `topics`: by topic. Messages that come again are those of the topic `%RETRY%group`.
    - `rebalances`: how often its queues have changed.
    - `in_progress`: messages that the application has now.
    - `queues`: the queues that are assigned to it now.
    """

    group: str
    topics: Mapping[str, TopicMetrics] = field(default_factory=dict)
    rebalances: int = 0
    in_progress: int = 0
    queues: Mapping[MessageQueue, QueueMetrics] = field(default_factory=dict)

    def ended(self) -> ConsumerMetrics:
        """What remains when the member is closed."""
        return replace(self, in_progress=0, queues={})

    def nameless(self) -> ConsumerMetrics:
        """What counts for the sum of all groups: each has a retry topic of its own."""
        of_all = TopicMetrics()
        for each in self.topics.values():
            of_all = of_all.plus(each)
        return replace(self, group="", topics={"": of_all})


@dataclass(frozen=True, slots=True)
class PullConsumerMetrics(_Metrics):
    """The pulls of a pull consumer since it was created.

    - `pulls`: those that were answered. `pulled_bytes`: the messages that they brought, as stored.
    - `failures`: those that failed, by the name of the error.
    """

    group: str
    pulls: int = 0
    pulled_bytes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)

    def ended(self) -> PullConsumerMetrics:
        """What remains when the pull consumer is closed."""
        return self

    def nameless(self) -> PullConsumerMetrics:
        """What counts for the sum of all groups."""
        return replace(self, group="")


@dataclass(frozen=True, slots=True)
class ConnectionMetrics:
    """The connection of a client to a broker or a name server.

    - `state`: "open"; "silent" if the server did not answer the last request; "closed" if there is
      none, as it is not needed.
    - `in_flight`: requests that wait for an answer now. `unsent_bytes`: what waits because the
      server does not read.
    - `opened`: how often it was opened. `sent_bytes` and `received_bytes` are those of all of them.
    """

    is_name_server: bool
    state: ConnectionState
    in_flight: int = 0
    unsent_bytes: int = 0
    opened: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """What a client has done since it was created, and has at hand now.

    A `Client` has its producers and consumers here, and what those did that are closed. Any other
    client has itself. All of a session have the same connections and routes.

    - `producers`, `consumers`, `pull_consumers`: by group. After 100 groups whose clients are all
      closed, older ones are together in a group without name, and their topics in one without name.
    - `connections`: by address.
    - `route_ages_ms`: how long ago a name server told the route of each topic, in ms.
    """

    client_id: str
    producers: Mapping[str, ProducerMetrics]
    consumers: Mapping[str, ConsumerMetrics]
    pull_consumers: Mapping[str, PullConsumerMetrics]
    connections: Mapping[str, ConnectionMetrics]
    route_ages_ms: Mapping[str, int]


PartMetrics: TypeAlias = ProducerMetrics | ConsumerMetrics | PullConsumerMetrics
ENDED_MAX: Final = 100
"""Groups of closed clients that are told apart. An application may make a group for each job."""


def together(parts: Iterable[PartMetrics | None]) -> list[PartMetrics]:
    """Those of one kind and group in one, where the last of them stands."""
    found: dict[tuple[type, str], Any] = {}
    for part in parts:
        if part is None:
            continue
        key = type(part), part.group
        before = found.pop(key, None)
        found[key] = part if before is None else before.plus(part)
    return list(found.values())


def with_ended(before: Iterable[PartMetrics], part: PartMetrics) -> list[PartMetrics]:
    """What closed clients did, with one more of them. The oldest groups become a single one.

    So the sums of all groups only grow, and a client needs no more memory for each further group.
    """
    parts = together([*before, part.ended()])
    named = [each for each in parts if each.group]
    nameless = [each for each in parts if not each.group]
    oldest = (each.nameless() for each in named[:-ENDED_MAX])
    return together([*nameless, *oldest, *named[-ENDED_MAX:]])
