"""PURE: flow control of pulls: when a queue may be pulled again, and with which flags.

See docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net.routes import BrokerAddress
from roquet.errors import ResponseError
from roquet.protocol.bodies.tables import MASTER_ID
from roquet.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND

FLOW_CONTROL_CODE: Final = 215
FLOW_CONTROL_DELAY_MS: Final = 20
FAILURE_DELAY_MS: Final = 1000
ILLEGAL_OFFSET_DELAY_MS: Final = 10_000
STANDSTILL_MS: Final = 1000
"""Minimum time between two pulls if the first did not advance the offset."""


@dataclass(frozen=True)
class PrefetchLimits:
    """Limits per queue of the messages that are in this process and not settled.

    `count_max` is in messages and `size_max` in bytes. `span_max` is the distance of the last
    message from the first, in queue offsets. Pulling pauses while a limit is exceeded.
    """

    count_max: int = 1000
    size_max: int = 100 * 1024 * 1024
    span_max: int = 2000


def has_room(queue: ProcessQueue, limits: PrefetchLimits) -> bool:
    """Whether a queue is within all limits, so that it may be pulled."""
    return (
        queue.count <= limits.count_max
        and queue.size <= limits.size_max
        and queue.span <= limits.span_max
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
