"""What a store gives, record by record."""

from __future__ import annotations

from roquet.protocol.filters import TagFilter
from roquet.protocol.record import Record, decode
from roquet.storage.fetch import Fetched
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
