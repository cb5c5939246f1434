"""What a store gives, record by record."""

from __future__ import annotations

from collections.abc import Sequence

from roquet.common.steps import finished
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.record import Record, decode
from roquet.storage.batch_records import BatchItem, BatchRecords
from roquet.storage.fetch import Fetched
from roquet.storage.key_search import KeyHits
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store


def records_in(fetched: Fetched) -> list[Record]:
    """All records, their checksums verified."""
    data = b"".join(fetched.records)
    found: list[Record] = []
    at = 0
    while at < len(data):
        found.append(decode(data, at, verify=True))
        at += int.from_bytes(data[at : at + 4], "big")
    return found


def bodies_in(store: Store, topic: str, queue_id: int = 0) -> list[bytes]:
    """Every message of a queue, by as many fetches as it takes."""
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        fetched = store.fetch(topic, queue_id, offset, 32, TagFilter())
        found += [record.body for record in records_in(fetched)]
        assert fetched.next_offset > offset
        offset = fetched.next_offset
    return found


def append_one(
    store: Store,
    queue: ConsumeQueue,
    body: bytes,
    properties: bytes = b"",
    keys: Sequence[bytes] = (),
    tag_code: int = 0,
    *,
    flag: int = 0,
    sys_flag: int = 0,
    born_ms: int = 1,
    born_host: bytes = bytes(8),
) -> int:
    """Append one message; where its record stands."""
    host = store.config.store_host
    record = NewRecord(queue, body, properties, flag, sys_flag, born_ms, born_host, host)
    return store.writer.append(record, keys, tag_code)


def packed(
    queue: ConsumeQueue,
    items: Sequence[BatchItem],
    sys_flag: int = 0,
    born_ms: int = 1,
    reconsume_times: int = 0,
) -> BatchRecords:
    """A batch for a queue."""
    records = BatchRecords(
        queue.topic_bytes, queue.queue_id, sys_flag, born_ms, bytes(8), bytes(8), reconsume_times
    )
    for item in items:
        records.add(item)
    return records


def put_batch(
    store: Store, queue: ConsumeQueue, items: Sequence[BatchItem], born_ms: int = 1
) -> list[int]:
    """Store a batch; where its records stand."""
    _, places = store.writer.append_batch(queue, packed(queue, items, 0, born_ms))
    return list(places.tolist())


def found_by_key(
    store: Store, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
) -> KeyHits:
    """What a question for a key finds, all its steps taken at once."""
    return finished(store.search_by_key(topic, key, count_max, begin_ms, end_ms))
