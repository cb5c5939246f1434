"""PURE: how much of a backlog the next batch of a stream takes, and whether it is time for one."""

from __future__ import annotations

from collections.abc import Mapping

from roquet.protocol.records.message import MessageQueue


def share_rows(backlog: Mapping[MessageQueue, int], most: int) -> dict[MessageQueue, int]:
    """`most` messages, shared out in proportion to what waits in each queue; all that wait if these are fewer.

    Every queue in which something waits gets at least one message, also if there are more such queues than `most`:
    otherwise a small queue beside large ones would never be read.
    """
    waiting = {queue: count for queue, count in backlog.items() if count > 0}
    total = sum(waiting.values())
    if total <= most:
        return waiting
    spare = max(most - len(waiting), 0)
    others = max(total - len(waiting), 1)
    shares = {queue: divmod((count - 1) * spare, others) for queue, count in waiting.items()}
    given = {queue: 1 + whole for queue, (whole, _) in shares.items()}
    left = spare - sum(whole for whole, _ in shares.values())
    for queue in sorted(waiting, key=lambda queue: -shares[queue][1])[:left]:
        given[queue] += 1
    return given


def share_bytes(
    counts: Mapping[MessageQueue, int], sizes: Mapping[MessageQueue, int], most: int
) -> dict[MessageQueue, int]:
    """As many messages of each queue as make `most` bytes together, in proportion; at least one of each.

    :param counts: as from `share_rows`: no more of a queue are taken.
    :param sizes: bytes of a message of each queue, on average.
    """
    shares = share_rows(
        {queue: count * sizes[queue] for queue, count in counts.items() if count}, most
    )
    return {
        queue: min(counts[queue], max(1, share // sizes[queue])) for queue, share in shares.items()
    }


class TriggerDelay:
    """Waits for `least` messages, but not longer than `delay_ms`, counted from the batch before."""

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._last_ms: int | None = None

    def is_due(self, waiting: int, now_ms: int) -> bool:
        """Whether a batch of `waiting` messages may be made now."""
        if self._least is None:
            return True
        if self._last_ms is None:
            self._last_ms = now_ms
        if waiting < self._least and now_ms - self._last_ms < self._delay_ms:
            return False
        self._last_ms = now_ms
        return True
