"""What a fetch gave, record by record."""

from __future__ import annotations

from roquet.protocol.record import Record, decode
from roquet.storage.fetch import Fetched


def records_in(fetched: Fetched) -> list[Record]:
    """All records, their checksums verified."""
    data = b"".join(fetched.records)
    found: list[Record] = []
    at = 0
    while at < len(data):
        found.append(decode(data, at, verify=True))
        at += int.from_bytes(data[at : at + 4], "big")
    return found
