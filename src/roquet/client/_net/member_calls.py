"""PURE: the bodies of requests from administrators to a group member: codes 220, 221, 307, 309.

See docs/protocol/request-codes.md#brokers-to-clients and docs/protocol/json.md#clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roquet.errors import PeerError
from roquet.protocol.bodies.tables import ConsumerData, queue_from_json, queue_key, queue_of_key
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect, load
from roquet.protocol.json.numbers import as_int64, json_long
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import VERSION_NAME


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of one assigned queue.

    `consumer_offset` is the group's, `last` the highest offset of the messages that are not
    settled; `count` and `size` are their number and bytes. Of them the first `consuming` are with
    the application; only ordered consumers tell that. `pulled_ms`, `done_ms` and `locked_ms` are
    the times (ms since 1970) of the last pull, the last settled message and the last lock.
    `is_dropped`: the queue was taken away, and keeps its lock for the message that is consumed.
    """

    consumer_offset: int
    last: int
    count: int
    size: int
    pulled_ms: int
    done_ms: int
    consuming: int = 0
    locked_ms: int = 0
    is_locked: bool = False
    is_dropped: bool = False

    def to_json(self) -> dict[str, Any]:
        """Apache's ProcessQueueInfo.

        "Transaction" is its word for the messages that an ordered consumer has handed out. They
        are not among the cached ones. This client tries to unlock a queue only once.
        """
        cached = self.count - self.consuming
        return {
            "cachedMsgCount": cached,
            "cachedMsgMaxOffset": self.last if cached else 0,
            "cachedMsgMinOffset": self.consumer_offset + self.consuming if cached else 0,
            "cachedMsgSizeInMiB": self.size >> 20,
            "commitOffset": self.consumer_offset,
            "droped": self.is_dropped,
            "lastConsumeTimestamp": self.done_ms,
            "lastLockTimestamp": self.locked_ms,
            "lastPullTimestamp": self.pulled_ms,
            "locked": self.is_locked,
            "transactionMsgCount": self.consuming,
            "transactionMsgMaxOffset": self.consumer_offset if self.consuming else 0,
            "transactionMsgMinOffset": self.consumer_offset if self.consuming else 0,
            "tryUnlockTimes": 1 if self.is_dropped else 0,
        }


def reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Read a ResetOffsetBody, as a list or as a table: queue -> new offset.

    :raises PeerError: the body has neither form.
    """
    try:
        table: Any = load(body)["offsetTable"]
        if isinstance(table, list):
            return {queue_from_json(entry): json_long(entry, "offset") for entry in table}
        return {queue_of_key(key): as_int64(offset) for key, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeerError(
            f"request to reset offsets without a table of offsets: {error!r}"
        ) from error


def status_body(states: Mapping[MessageQueue, QueueState], topic: str) -> bytes:
    """A GetConsumerStatusBody: the offsets of this member in one topic."""
    offsets = {
        queue: state.consumer_offset for queue, state in states.items() if queue.topic == topic
    }
    return dump_dialect({"consumerTable": {}, "messageQueueTable": _by_queue(offsets)})


def running_info_body(
    data: ConsumerData,
    states: Mapping[MessageQueue, QueueState],
    properties: Mapping[str, str],
    consume_status: Mapping[str, Mapping[str, Any]],
    jstack: str | None = None,
) -> bytes:
    """A ConsumerRunningInfo. The size of the thread pool is a constant: there is one loop.

    :param properties: what depends on the member.
    :param consume_status: per topic, a ConsumeStatus.
    :param jstack: stacks of this process, if they were asked for.
    """
    document = {
        "mqTable": _by_queue({queue: state.to_json() for queue, state in states.items()}),
        "properties": {
            "PROP_CLIENT_VERSION": VERSION_NAME,
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "consumeFromWhere": data.consume_from,
            "consumerGroup": data.group,
            "messageModel": data.message_model,
            "unitMode": "true" if data.unit_mode else "false",
            **properties,
        },
        "statusTable": dict(sorted(consume_status.items())),
        "subscriptionSet": [subscription.to_json() for subscription in data.subscriptions],
    }
    return dump_dialect(document if jstack is None else {"jstack": jstack, **document})


def consumed_body(is_done: bool, spent_ms: int, *, is_ordered: bool) -> bytes:
    """A ConsumeMessageDirectlyResult.

    :param is_done: whether the application acknowledged the message.
    :param is_ordered: whether the member consumes in order.
    """
    result = "CR_SUCCESS" if is_done else "CR_LATER"
    return dump_bytes(
        {
            "autoCommit": True,
            "consumeResult": result,
            "order": is_ordered,
            "spentTimeMills": spent_ms,
        }
    )


def _by_queue(table: Mapping[MessageQueue, object]) -> ObjectKeys:
    return ObjectKeys({queue_key(queue): table[queue] for queue in sorted(table)})
