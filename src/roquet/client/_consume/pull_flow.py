"""PURE: when a queue may be pulled again, and with which flags from master or slave.

See docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net.routes import MASTER_ID, BrokerAddress
from roquet.errors import ResponseError
from roquet.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND

FLOW_CONTROL_CODE: Final = 215
FLOW_CONTROL_DELAY_MS: Final = 20
FAILURE_DELAY_MS: Final = 1000
ILLEGAL_OFFSET_DELAY_MS: Final = 10_000
STANDSTILL_MS: Final = 1000
"""The shortest time between two pulls of which the second begins no further than the first."""


@dataclass(frozen=True)
class PrefetchLimits:
    """What may wait in this process per queue: messages, bytes, and the distance of the last from the first."""

    count_max: int = 1000
    size_max: int = 100 * 1024 * 1024
    span_max: int = 2000


def has_room(taken: ProcessQueue, limits: PrefetchLimits) -> bool:
    return (
        taken.count <= limits.count_max
        and taken.size <= limits.size_max
        and taken.span <= limits.span_max
    )


def sys_flag(at: BrokerAddress, commit_offset: int) -> int:
    """The flags of a pull: it may be held and brings its own subscription; a master also stores the progress.

    A broker that has not heard our heartbeat yet thus serves it all the same (docs/pitfalls.md#trap-27). Slaves keep no
    progress from pulls (docs/pitfalls.md#trap-54).
    """
    commits = at.is_master and commit_offset > 0
    return SUSPEND | SUBSCRIPTION | (COMMIT_OFFSET if commits else 0)


@dataclass
class PullPosition:
    """Where a queue's next pull starts, and which broker id it asks for.

    Keeps: both follow every answer, whatever its status (docs/pitfalls.md#trap-53 and docs/pitfalls.md#trap-56).
    """

    offset: int
    broker_id: int = MASTER_ID

    def answered(self, result: PullResult, elapsed_ms: float) -> float:
        """Take over an answer; gives the ms to wait before the next pull.

        Only an answer that came fast and does not lead on has to wait: a broker that does not hold pulls, one that
        gives the same messages again, or a slave behind the offset with no master to turn to, would be asked without
        pause.
        """
        stands_still = result.next_offset <= self.offset
        self.broker_id = result.suggested_broker_id
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self.offset = result.next_offset
            return ILLEGAL_OFFSET_DELAY_MS
        self.offset = result.next_offset
        return max(0.0, STANDSTILL_MS - elapsed_ms) if stands_still else 0.0


def delay_after_failure_ms(error: Exception) -> int:
    if isinstance(error, ResponseError) and error.code == FLOW_CONTROL_CODE:
        return FLOW_CONTROL_DELAY_MS
    return FAILURE_DELAY_MS
