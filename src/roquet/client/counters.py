"""PURE: what a producer counts."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from roquet.errors import MessageError, RoquetError

BOUNDS_MS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 10e3)
"""The upper ends of the buckets of a latency, each included; the last bucket has no end."""
UNSORTED_MAX: Final = 1000
"""Latencies that wait for their buckets. A thousand at once take half the time of one by one."""


class SendCounters:
    """What `Sender` counts. See `ProducerMetrics`.

    A send takes some 16 µs, so its request is counted in place; `sort` is called now and then.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.sent_bytes = 0
        self.sent_one_way = 0
        self.failures: dict[str, int] = {}
        self.retries = 0
        self.unsorted_s: list[float] = []
        """Latencies that are in no bucket yet."""
        self.latency_counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0.0

    def sort(self) -> None:
        """Put the latencies into their buckets."""
        for latency_s in self.unsorted_s:
            self.latency_counts[bisect_left(BOUNDS_MS, latency_s * 1000)] += 1
        self.total_ms += sum(self.unsorted_s) * 1000
        self.unsorted_s.clear()

    def failed(self, error: BaseException, count: int = 1) -> None:
        """Count messages that were not stored, or of which this is not known.

        Arguments that cannot be used, and exceptions of an application's selector, do not count.
        """
        if isinstance(error, MessageError):
            return
        # A cancellation is no `Exception`.
        if isinstance(error, RoquetError) or not isinstance(error, Exception):
            count_failure(self.failures, error, count)

    def cancelled(self, count: int, size: int) -> None:
        """Take back messages that were stored: their sends were cancelled and count as failed.

        :param size: of their bodies together.
        """
        self.sent -= count
        self.sent_bytes -= size


def count_failure(failures: dict[str, int], error: BaseException, count: int = 1) -> None:
    """Count an error by its name."""
    name = type(error).__name__
    failures[name] = failures.get(name, 0) + count
