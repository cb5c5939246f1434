"""Searches messages by key: the index names physical offsets, the log has the records."""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.steps import Steps
from roquet.storage.index.index import Index
from roquet.storage.index.layout import key_hash
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request

KEY_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of records that a query by key returns. No client accepts a frame of more than 16 MiB, and
while a large response is built all other clients wait."""


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Records that may have a key, oldest first, and the end of the index.

    `last_ms` and `last_at` are store time and physical offset of the newest indexed record.
    """

    records: list[bytes]
    last_ms: int
    last_at: int


def search_by_key(
    log: CommitLog,
    index: Index,
    topic: str,
    key: str,
    count_max: int,
    begin_ms: int,
    end_ms: int,
) -> Steps[KeyHits]:
    """Find the newest records in a range of store times that have a key with the hash of `key`.

    Oldest first; at most `count_max` and `KEY_BYTES_MAX` bytes of them, but at least one.

    :param index: with all keys flushed.
    :param begin_ms: inclusive; `end_ms` as well, both to the second.
    """
    found = yield from index.find(topic, key, begin_ms, end_ms, count_max)
    records: list[bytes] = []
    size = 0
    for at in sorted(set(found), reverse=True):
        yield
        record = _with_key(log, at, topic, key)
        if record is None:
            continue
        size += len(record)
        if records and size > KEY_BYTES_MAX:
            break
        records.append(record)
    return KeyHits(records[::-1], index.end_ms, max(index.end_at, 0))


def _with_key(log: CommitLog, at: int, topic: str, key: str) -> bytes | None:
    """The record at physical offset `at` if it has a key with the hash of `key`, else None.

    A damaged index may name any physical offset.
    """
    record = log.record_at(at)
    if record is None:
        return None
    request = read_dispatch_request(at, memoryview(record))
    wanted = key_hash(topic, key)
    has_key = any(
        key_hash(topic, each.decode("utf-8", "replace")) == wanted for each in request.keys
    )
    return record if request.topic == topic and has_key else None
