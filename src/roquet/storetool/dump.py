"""Reads records of a store, in the order of a queue or of the log, and converts them to JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from roquet.errors import CorruptRecord
from roquet.protocol.records import message as m
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.record import Record, decode, host_text
from roquet.storage.index.layout import key_hash
from roquet.storage.log.dispatch_request import keys_of
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storetool.files import StoreFiles
from roquet.storetool.listing import first_readable
from roquet.storetool.read.column_scan import ColumnScan, RecordColumns
from roquet.storetool.read.queue_entries import entries_of

_NEVER: Final = 1 << 62


def _or_never(limit: int | None) -> int:
    return _NEVER if limit is None else limit


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter for records; None stands for any.

    :param first: the lowest queue offset.
    :param end: the queue offset to stop at (exclusive).
    :param since_ms: the earliest store time (ms since the epoch).
    :param until_ms: the store time to stop at (exclusive).
    :param key: a message key or unique key.
    """

    topic: str | None = None
    queue_id: int | None = None
    first: int = 0
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None

    def has(self, record: Record) -> bool:
        """Whether the filter lets a record pass."""
        return (
            self.topic in (None, record.topic)
            and self.queue_id in (None, record.queue_id)
            and self.first <= record.queue_offset < _or_never(self.end)
            and (self.since_ms or 0) <= record.store_ms < _or_never(self.until_ms)
            and (self.key is None or self.key.encode() in keys_of(record.properties))
        )


def dump(
    files: StoreFiles,
    wanted: Wanted,
    skipped: Callable[[str], None] = lambda text: None,
    progress: Callable[[int], None] = lambda size: None,
) -> Iterator[bytes]:
    """Read the records that `wanted` lets pass, each as its bytes.

    Records of one queue (topic and queue id are given) are found by the queue's entries and come in
    the queue's order. All others come in the order of the log.

    :param skipped: called with a text for each entry or range of the log that cannot be read.
    :param progress: called with the number of bytes of the log read since the last call.
    """
    if wanted.topic is not None and wanted.queue_id is not None:
        yield from _of_queue(files, wanted, skipped)
    else:
        yield from _of_log(files, wanted, skipped, progress)


def _of_queue(files: StoreFiles, wanted: Wanted, skipped: Callable[[str], None]) -> Iterator[bytes]:
    assert wanted.topic is not None
    assert wanted.queue_id is not None
    entries = entries_of(files, wanted.topic, wanted.queue_id)
    end = min(_or_never(wanted.end), entries.end())
    for first, found in entries.walk(
        max(wanted.first, first_readable(entries, files.log.start, end)), end
    ):
        for offset, (at, size, _) in enumerate(found.tolist(), first):
            data = files.log.read(at, size) if 0 < size < BLANK_RECORD_SIZE else b""
            try:
                record = decode(data)
            except CorruptRecord as error:
                skipped(f"{wanted.topic} {wanted.queue_id}, queue offset {offset}: {error.reason}")
                continue
            if wanted.has(record):
                yield data


def _of_log(
    files: StoreFiles,
    wanted: Wanted,
    skipped: Callable[[str], None],
    progress: Callable[[int], None],
) -> Iterator[bytes]:
    scan = ColumnScan(files.log, _NEVER, progress, verify=False)
    reported = 0
    for rows in scan:
        for damage in scan.damages[reported:]:
            skipped(f"physical offsets {damage.start} to {damage.end - 1}: {damage.reason}")
        reported = len(scan.damages)
        base = int(rows.physical[0])
        chosen = _chosen(rows, wanted)
        data = files.log.read(base, rows.end - base) if len(chosen) else b""
        for row in chosen.tolist():
            start = int(rows.physical[row]) - base
            record = data[start : start + int(rows.size[row])]
            if wanted.key is None or wanted.has(decode(record)):
                yield record


def _chosen(rows: RecordColumns, wanted: Wanted) -> Ints:
    """Return the row numbers that may pass: a key is only compared by its hash here."""
    fits = (rows.store_ms >= (wanted.since_ms or 0)) & (rows.store_ms < _or_never(wanted.until_ms))
    fits &= (rows.queue_offset >= wanted.first) & (rows.queue_offset < _or_never(wanted.end))
    if wanted.topic is not None:
        fits &= rows.topic == (
            rows.topics.index(wanted.topic) if wanted.topic in rows.topics else -1
        )
    if wanted.queue_id is not None:
        fits &= rows.queue_id == wanted.queue_id
    if wanted.key is not None:
        hashes = [key_hash(topic, wanted.key) for topic in rows.topics]
        fits &= np.isin(rows.physical, rows.key_physical[np.isin(rows.key_hash, hashes)])
    return np.flatnonzero(fits)


def as_json(data: bytes, *, with_body: bool = True) -> dict[str, Any]:
    """Return a record's fields under the names that Apache's tools use.

    :param data: the record's bytes.
    :param with_body: whether to include the body. It is not uncompressed; a body that is not UTF-8
        is in `bodyBase64` instead of `body`.
    """
    record = decode(data)
    properties = record.properties
    fields: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "msgId": record.offset_message_id,
        "storeTimestamp": record.store_ms,
        "bornTimestamp": record.born_ms,
        "bornHost": _host(record.born_host),
        "storeHost": _host(record.store_host),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "properties": properties,
        "tags": properties.get(m.TAGS),
        "keys": properties.get(m.KEYS),
        "size": len(data),
    }
    return fields | _body(record.body) if with_body else fields


_host = lru_cache(4096)(host_text)


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": b64encode(body).decode("ascii")}
