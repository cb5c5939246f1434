"""How many messages a second of CPU the Spark source turns from a pull answer's bytes into Arrow
columns, on one core.

python -m bench.columns [messages]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from roquet.protocol.records.layout import checksum
from roquet.protocol.records.record import Record, decode_all, host_bytes
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.records import Records
from roquet.spark._arrow.schema import ARROW_SCHEMA

ROUNDS = 10
SHAPES = {"128 B body, 5 properties": 128, "1 KiB body, 5 properties": 1024}


def stored(count: int, body_size: int) -> bytes:
    """Records as a producer of flights leaves them."""
    born_host, store_host = host_bytes("10.0.0.9", 50000), host_bytes("10.0.0.1", 10911)
    body = (bytes(range(97, 123)) * (body_size // 26 + 1))[:body_size]
    return b"".join(
        Record(
            queue_id=3,
            flag=0,
            queue_offset=index,
            physical_offset=index * 400,
            sys_flag=0,
            born_ms=1_700_000_000_000 + index,
            born_host=born_host,
            store_ms=1_700_000_000_001 + index,
            store_host=store_host,
            reconsume_times=0,
            prepared_offset=0,
            body=body,
            topic="flights",
            properties_text=f"TAGS\x01UA\x02KEYS\x01UA{index}\x02UNIQ_KEY\x017F00000100002A9F{index:016X}"
            f"\x02WAIT\x01true\x02month\x01{index % 12 + 1}",
            body_crc=checksum(body),
        ).encode()
        for index in range(count)
    )


def columns(names: list[str], data: bytes) -> list[pa.RecordBatch | BadBody]:
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in names])
    return list(decode(Records.walk(data), schema, broker_name="broker-a"))


def one_by_one(data: bytes) -> list[dict[str, str]]:
    return [record.properties for record in decode_all(data)]


WORK: dict[str, Callable[[bytes], object]] = {
    "all columns": partial(columns, ARROW_SCHEMA.names),
    "without properties": partial(
        columns, [name for name in ARROW_SCHEMA.names if name != "properties"]
    ),
    "body, tags, queueOffset": partial(columns, ["body", "tags", "queueOffset"]),
    "body": partial(columns, ["body"]),
    "only find the records": Records.walk,
    "for comparison: a Record and a dict each": one_by_one,
}


def best_seconds(work: Callable[[bytes], object], data: bytes) -> float:
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work(data)
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for shape, body_size in SHAPES.items():
        data = stored(count, body_size)
        print(f"{count:,} messages in one batch, {shape}, {len(data) / count:.0f} bytes each:")
        for name, work in WORK.items():
            seconds = best_seconds(work, data)
            print(
                f"  {name:<42} {count / seconds:>12,.0f} messages/s  {len(data) / seconds / 1e6:>7,.0f} MB/s"
            )


if __name__ == "__main__":
    main()
