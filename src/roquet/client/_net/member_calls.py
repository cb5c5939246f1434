"""PURE: what brokers ask a member of a group for an administrator: codes 220, 221, 307, 309.

See docs/protocol/request-codes.md#brokers-to-clients and docs/protocol/json.md#clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roquet.errors import PeerError
from roquet.protocol.bodies.tables import ConsumerData, queue_from_json, queue_to_json
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect, load
from roquet.protocol.json.numbers import as_int64, json_long
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import VERSION_NAME


@dataclass(frozen=True, slots=True)
class QueueState:
    """How this member stands with one queue: offsets of the lowest and the last message taken and not done, their
    number and bytes, and when something was last pulled and last done (ms since the epoch).
    """

    progress: int
    last: int
    count: int
    size: int
    pulled_ms: int
    done_ms: int

    def to_json(self) -> dict[str, Any]:
        """ProcessQueueInfo; there are no locks and no transactions here."""
        return {
            "cachedMsgCount": self.count,
            "cachedMsgMaxOffset": self.last if self.count else 0,
            "cachedMsgMinOffset": self.progress if self.count else 0,
            "cachedMsgSizeInMiB": self.size >> 20,
            "commitOffset": self.progress,
            "droped": False,
            "lastConsumeTimestamp": self.done_ms,
            "lastLockTimestamp": 0,
            "lastPullTimestamp": self.pulled_ms,
            "locked": False,
            "transactionMsgCount": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgMinOffset": 0,
            "tryUnlockTimes": 0,
        }


def reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Queue -> offset to go on at, of either form of ResetOffsetBody.

    :raises PeerError: it is neither.
    """
    try:
        table: Any = load(body)["offsetTable"]
        if isinstance(table, list):
            return {queue_from_json(entry): json_long(entry, "offset") for entry in table}
        return {queue_from_json(load(key)): as_int64(offset) for key, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeerError(f"no table of offsets: {error!r}") from error


def status_body(states: Mapping[MessageQueue, QueueState], topic: str) -> bytes:
    """GetConsumerStatusBody of one member and topic."""
    progress = {queue: state.progress for queue, state in states.items() if queue.topic == topic}
    return dump_dialect({"consumerTable": {}, "messageQueueTable": _by_queue(progress)})


def running_info_body(
    data: ConsumerData, states: Mapping[MessageQueue, QueueState], started_ms: int
) -> bytes:
    """ConsumerRunningInfo; no rates are counted, and no thread pool is there."""
    return dump_dialect(
        {
            "mqTable": _by_queue({queue: state.to_json() for queue, state in states.items()}),
            "properties": {
                "PROP_CLIENT_VERSION": VERSION_NAME,
                "PROP_CONSUMEORDERLY": "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
                "PROP_CONSUME_TYPE": data.consume_type,
                "PROP_THREADPOOL_CORE_SIZE": "1",
            },
            "statusTable": {},
            "subscriptionSet": [subscription.to_json() for subscription in data.subscriptions],
        }
    )


def consumed_body(is_done: bool, spent_ms: int) -> bytes:
    """ConsumeMessageDirectlyResult."""
    result = "CR_SUCCESS" if is_done else "CR_LATER"
    return dump_bytes(
        {"autoCommit": True, "consumeResult": result, "order": False, "spentTimeMills": spent_ms}
    )


def _by_queue(table: Mapping[MessageQueue, object]) -> ObjectKeys:
    return ObjectKeys(
        {dump_bytes(queue_to_json(queue)).decode(): table[queue] for queue in sorted(table)}
    )
