"""PURE: the size of the next batch of a stream, and whether a batch is due."""

from __future__ import annotations

from collections.abc import Mapping

from roquet.protocol.records.message import MessageQueue


def share_rows(backlog: Mapping[MessageQueue, int], most: int) -> dict[MessageQueue, int]:
    """The number of messages to read of each queue: `most` in total, in proportion to the backlog.

    Every queue with a backlog gets at least one message, even if there are more such queues than
    `most`. Otherwise a small queue beside large ones would never be read.

    :param backlog: unread messages per queue.
    :returns: counts of the queues with a backlog; all of the backlog if it has at most `most`
        messages.
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
    """The number of messages to read of each queue: `most` bytes in total, at least one each.

    :param counts: upper bounds, from `share_rows`.
    :param sizes: average bytes of a message of each queue.
    """
    shares = share_rows(
        {queue: count * sizes[queue] for queue, count in counts.items() if count}, most
    )
    return {
        queue: min(counts[queue], max(1, share // sizes[queue])) for queue, share in shares.items()
    }


class TriggerDelay:
    """Delays batches until `least` messages wait, for at most `delay_ms` since the previous batch.

    With `least` None there is no delay.
    """

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._last_ms: int | None = None

    def is_due(self, waiting: int, now_ms: int) -> bool:
        """Whether a batch may start now. A batch that is due is taken as started at `now_ms`.

        :param waiting: count of unread messages.
        :param now_ms: monotonic clock.
        """
        if self._least is None:
            return True
        if self._last_ms is None:
            self._last_ms = now_ms
        if waiting < self._least and now_ms - self._last_ms < self._delay_ms:
            return False
        self._last_ms = now_ms
        return True
