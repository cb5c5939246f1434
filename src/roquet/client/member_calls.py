"""PURE: what brokers ask a member of a group on behalf of an administrator: codes 220, 221 (protocol.md 2.3, 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roquet.errors import PeerError
from roquet.protocol.bodies import queue_from_json, queue_to_json
from roquet.protocol.json_dialect import ObjectKeys, dump_bytes, dump_dialect, load
from roquet.protocol.message import MessageQueue


def reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Queue -> offset to go on at, of either form of ResetOffsetBody.

    :raises PeerError: it is neither.
    """
    try:
        table: Any = load(body)["offsetTable"]
        if isinstance(table, list):
            return {queue_from_json(entry): int(entry["offset"]) for entry in table}
        return {queue_from_json(load(key)): int(offset) for key, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeerError(f"no table of offsets: {error!r}") from error


def status_body(progress: Mapping[MessageQueue, int]) -> bytes:
    """GetConsumerStatusBody of one member."""
    table = ObjectKeys(
        {dump_bytes(queue_to_json(queue)).decode(): offset for queue, offset in sorted(progress.items())}
    )
    return dump_dialect({"consumerTable": {}, "messageQueueTable": table})
