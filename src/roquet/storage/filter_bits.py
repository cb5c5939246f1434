"""Filter bits of records, which the extension units of their queue entries keep.

See docs/storage/consume-queue.md.
"""

from __future__ import annotations

import logging
from typing import Protocol

from roquet.errors import UnreadableFile
from roquet.storage.log.commit_log import CommitLog

log = logging.getLogger(__name__)


class FilterBits(Protocol):
    """Computes the filter bits of records, `size` bytes each."""

    size: int

    def has_any(self, topic: str) -> bool:
        """Whether records of a topic get filter bits."""

    def of(self, topic: str, record: bytes) -> bytes: ...


class LogFilterBits:
    """Computes the filter bits of records in the log.

    A record gets none while it waits in the memory buffer, or if its file cannot be read.

    :param filter_bits: computes them from a record's bytes.
    """

    def __init__(self, commit_log: CommitLog, filter_bits: FilterBits) -> None:
        self._log = commit_log
        self._filter_bits = filter_bits
        self._without_bits: set[str] = set()
        """Topics for which a failure to compute filter bits was logged."""
        self.size = filter_bits.size

    def of(self, topic: str, at: int, size: int) -> bytes:
        """The filter bits of the record of `size` bytes at physical offset `at`, or no bytes."""
        if not self._filter_bits.has_any(topic):
            return b""
        try:
            record = self._log.record_bytes(at, size)
        except UnreadableFile:
            return b""
        if record is None:
            return b""
        try:
            return self._filter_bits.of(topic, record)
        except Exception:  # the record is in the log: it needs its entry, and can do without bits
            if topic not in self._without_bits:
                self._without_bits.add(topic)
                log.exception(
                    "filter bits cannot be computed, new messages get none: topic=%s", topic
                )
            return b""
