"""A stored message, as Apache's 4.9.8 wrote it: that of docs/protocol/messages.md#examples."""

from __future__ import annotations

from typing import Final

from roquet.protocol.records.record import Record, host_bytes

STORED: Final = bytes.fromhex(
    "00000067daa320a758932aac0000000300000000000000000000000500000000000003e8000000000000018bcfe56800"
    "0a0000090000c3500000018bcfe568010a00000100002a9f0000000000000000000000000000000268690154000954414753"
    "0154616741"
)
RECORD: Final = Record(
    queue_id=3,
    flag=0,
    queue_offset=5,
    physical_offset=1000,
    sys_flag=0,
    born_ms=1_700_000_000_000,
    born_host=host_bytes("10.0.0.9", 50000),
    store_ms=1_700_000_000_001,
    store_host=host_bytes("10.0.0.1", 10911),
    reconsume_times=0,
    prepared_offset=0,
    body=b"hi",
    topic="T",
    properties_text="TAGS\x01TagA",
    body_crc=1_486_039_724,
)
