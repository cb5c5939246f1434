"""PURE: flow control of pulls: when a queue may be pulled again, and with which flags.

See docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net.routes import BrokerAddress
from roquet.common.java import LONG_MAX
from roquet.errors import ConfigError, ResponseError
from roquet.protocol.bodies.tables import MASTER_ID
from roquet.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND

FLOW_CONTROL_CODE: Final = 215
FLOW_CONTROL_DELAY_MS: Final = 20
FAILURE_DELAY_MS: Final = 1000
ILLEGAL_OFFSET_DELAY_MS: Final = 10_000
STANDSTILL_MS: Final = 1000
"""Minimum time between two pulls if the first did not advance the offset."""


@dataclass(frozen=True, slots=True)
class PrefetchLimits:
    """Limits of the messages that are in this process and not settled.

    Pulling of a queue pauses while a limit is exceeded.

    :param count_max: messages of each queue.
    :param size_max: bytes of each queue.
    :param span_max: the distance of a queue's last message from its first, in queue offsets. It
        does not count for ordered consumers.
    :param total_count_max: messages of all queues, divided by the number of queues that this member
        has, those of the retry topic included. It replaces `count_max`.
    :param total_size_max: bytes of all queues, divided in the same way. It replaces `size_max`.
    :raises ConfigError: a limit is out of range; the message names it.
    """

    count_max: int = 1000
    size_max: int = 100 * 1024 * 1024
    span_max: int = 2000
    total_count_max: int | None = None
    total_size_max: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            limit = getattr(self, name)
            is_total = name.startswith("total")
            if is_total and limit is None:
                continue
            least = 1 if is_total else 0
            if not isinstance(limit, int) or not least <= limit <= LONG_MAX:
                raise ConfigError(f"{name} is {limit!r}: allowed are {least} to {LONG_MAX}")

    def __repr__(self) -> str:
        totals = "".join(
            f", {name}={limit} {unit}"
            for name, limit, unit in (
                ("total_count_max", self.total_count_max, "messages"),
                ("total_size_max", self.total_size_max, "bytes"),
            )
            if limit is not None
        )
        return (
            f"PrefetchLimits(count_max={self.count_max} messages, size_max={self.size_max} bytes, "
            f"span_max={self.span_max} offsets{totals})"
        )

    def of_queue(self, queues: int) -> PrefetchLimits:
        """The limits of each queue of a member that has `queues` queues."""
        if self.total_count_max is None and self.total_size_max is None:
            return self
        return PrefetchLimits(
            _share(self.count_max, self.total_count_max, queues),
            _share(self.size_max, self.total_size_max, queues),
            self.span_max,
        )


def _share(of_queue: int, total: int | None, queues: int) -> int:
    return of_queue if total is None else max(1, total // max(1, queues))


def has_room(queue: ProcessQueue, limits: PrefetchLimits, *, is_ordered: bool = False) -> bool:
    """Whether a queue is within all limits, so that it may be pulled.

    :param is_ordered: one message after the other is settled, so that the span does not count.
    """
    return (
        queue.count <= limits.count_max
        and queue.size <= limits.size_max
        and (is_ordered or queue.span <= limits.span_max)
    )


def sys_flag(at: BrokerAddress, commit_offset: int) -> int:
    """The sysFlag of a pull: it may be held, and carries its own subscription and the offset.

    With its own subscription a broker serves the pull before it has a heartbeat of this member
    (docs/pitfalls.md#trap-27). Slaves do not store offsets of pulls (docs/pitfalls.md#trap-54).
    """
    commits = at.is_master and commit_offset > 0
    return SUSPEND | SUBSCRIPTION | (COMMIT_OFFSET if commits else 0)


@dataclass
class PullPosition:
    """The offset and the broker id of a queue's next pull.

    Invariant: both are taken from the last answer, whatever its status was
    (docs/pitfalls.md#trap-53 and docs/pitfalls.md#trap-56).
    """

    offset: int
    broker_id: int = MASTER_ID

    def advance(self, result: PullResult, elapsed_ms: float) -> float:
        """Take offset and broker id from an answer; return the ms to wait before the next pull.

        After an answer that came quickly and did not advance the offset there is a pause. Otherwise
        the loop would be busy with a broker that does not hold pulls, one that returns the same
        messages again, or a slave that lags behind the offset while the master is down.

        :param elapsed_ms: how long the pull took.
        """
        stands_still = result.next_offset <= self.offset
        self.broker_id = result.suggested_broker_id
        self.offset = result.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return ILLEGAL_OFFSET_DELAY_MS
        return max(0.0, STANDSTILL_MS - elapsed_ms) if stands_still else 0.0


def delay_after_failure_ms(error: Exception) -> int:
    """How long to wait after a failed pull, in ms."""
    if isinstance(error, ResponseError) and error.code == FLOW_CONTROL_CODE:
        return FLOW_CONTROL_DELAY_MS
    return FAILURE_DELAY_MS
