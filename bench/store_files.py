"""How fast Spark gets messages out of store files, beside what it does with the same rows in
Parquet.

python -m bench.store_files [--folder FOLDER] [--results FILE] [--messages N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench import machine, procfs
from roquet.common.runtime import wall_clock_ms
from roquet.protocol.records.message import tag_code
from roquet.protocol.records.record import host_bytes
from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.plan import plan_parts
from roquet.spark._storefiles.read import read
from roquet.spark.session import session
from roquet.storage.batch_records import BatchItem, BatchRecords
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store

TOPIC: Final = "flights"
QUEUES: Final = 16
GROUP: Final = 64
SIZES: Final = {"128 B": 128, "1 KiB": 1024}
BORN_HOST: Final = host_bytes("10.0.0.9", 50000)
START_MS: Final = 1_700_000_000_000
PROPERTIES: Final = b"TAGS\x01UA\x02KEYS\x01UA%d\x02UNIQ_KEY\x017F0000010001%020X\x02WAIT\x01true"
COLUMNS: Final = {
    "all columns": ARROW_SCHEMA.names,
    "all but properties": [name for name in ARROW_SCHEMA.names if name != "properties"],
    "topic, queueId, queueOffset, tags, body": ["topic", "queueId", "queueOffset", "tags", "body"],
    "body": ["body"],
}


class Row(NamedTuple):
    """One figure in messages a second: of time, and of one core's time."""

    name: str
    of_time: float
    of_cpu: float


def fill(
    folder: Path,
    count: int,
    size: int,
    topics: Sequence[str] = (TOPIC,),
    queues: int = QUEUES,
    group: int = GROUP,
) -> None:
    """A store with messages, each with tags, keys and a unique key as a Java producer makes it.

    `group` of them are of one topic and queue, then come those of the next topic, and in the next
    round the next queue.
    """
    store = Store(StoreConfig(folder, [folder / "commitlog"], index_enabled=False), wall_clock_ms)
    store.open()
    body, code = (bytes(range(97, 123)) * (size // 26 + 1))[:size], tag_code("UA")
    for number, first in enumerate(range(0, count, group)):
        numbers = range(first, min(first + group, count))
        queue = store.queue(topics[number % len(topics)], number // len(topics) % queues)
        records = BatchRecords(
            queue.topic_bytes, queue.queue_id, 0, START_MS + first, BORN_HOST, bytes(8)
        )
        for each in numbers:
            records.add(BatchItem(0, body, PROPERTIES % (each, each), (), code))
        store.writer.append_batch(queue, records)
        store.end_turn()
    store.close()


def rate(count: int, of_time: float, of_cpu: float, name: str) -> Row:
    return Row(name, count / of_time, count / of_cpu)


def alone(store: Path, size: str) -> Iterator[Row]:
    """What the tasks of a read do, in this process and without Spark."""
    for name, columns in COLUMNS.items():
        options = StoreOptions.of({"path": str(store)})
        schema = pa.schema([ARROW_SCHEMA.field(column) for column in columns])
        begun, cpu = time.perf_counter(), time.process_time()
        count = sum(
            batch.num_rows for part in plan_parts(options) for batch in read(part, options, schema)
        )
        yield rate(
            count,
            time.perf_counter() - begun,
            time.process_time() - cpu,
            f"{size}, decoded alone: {name}",
        )


def to_parquet(frame: DataFrame, place: Path, count: int, name: str) -> Row:
    """Write a frame; how long it took, with the time of Spark's Java and its Python workers."""
    begun, cpu = time.perf_counter(), procfs.tree_cpu_s(os.getpid())
    frame.write.mode("overwrite").parquet(str(place))
    return rate(count, time.perf_counter() - begun, procfs.tree_cpu_s(os.getpid()) - cpu, name)


def in_spark(spark: SparkSession, store: Path, place: Path, count: int, size: str) -> Iterator[Row]:
    """The same messages from the store to Parquet, and from there to Parquet, in turn."""
    first, copy, bodies = place / "from-store", place / "copy", place / "bodies"
    reader = spark.read.format("rocketmq-store")
    yield to_parquet(reader.load(str(store)), first, count, f"{size}, store files to Parquet")
    parquet = spark.read.parquet(str(first))
    assert parquet.count() == count, "messages are missing"
    yield to_parquet(parquet, copy, count, f"{size}, Parquet to Parquet")
    wanted = reader.schema("body binary").load(str(store))
    yield to_parquet(wanted, bodies, count, f"{size}, store files to Parquet: body")
    yield to_parquet(parquet.select("body"), copy, count, f"{size}, Parquet to Parquet: body")


def measured(spark: SparkSession, folder: Path, count: int, rounds: int) -> list[list[Row]]:
    """Round by round; in a round before them Java warms up."""
    found: list[list[Row]] = [[] for _ in range(rounds)]
    for size, size_bytes in SIZES.items():
        store, place = folder / f"store-{size_bytes}", folder / "parquet"
        fill(store, count, size_bytes)
        list(in_spark(spark, store, place, count, size))
        for number, rows in enumerate(found, 1):
            for row in (*alone(store, size), *in_spark(spark, store, place, count, size)):
                rows.append(row)
                print(
                    f"round {number}, {row.name}: {row.of_time:,.0f}/s, {row.of_cpu:,.0f}/s of CPU",
                    flush=True,
                )
        shutil.rmtree(store)
    return found


def page(rounds: Sequence[Sequence[Row]], count: int) -> str:
    lines = [
        "# Store files in Spark",
        "",
        f"- {datetime.now(UTC).date()}, `python -m bench.store_files --rounds {len(rounds)}`, {len(rounds)} rounds, "
        "medians (least – greatest)",
        f"- {machine.describe()}; Spark on local[2], {count:,} messages of one size in a store, in the system's cache",
        f"- {machine.describe_python()}; {machine.describe_java()}",
        "- Parquet has the same columns and rows, all 18 of a message unless others are named; checksums are compared",
        "- CPU is that of Java and all Python workers; decoded alone: in one process, without Spark",
        "",
        "| figure | messages/s | messages/s of CPU |",
        "| --- | --- | --- |",
    ]
    for each in zip(*rounds, strict=True):
        times, cpus = ([row.of_time for row in each], [row.of_cpu for row in each])
        lines.append(f"| {each[0].name} | {spread(times)} | {spread(cpus)} |")
    return "\n".join(lines) + "\n"


def spread(values: Sequence[float]) -> str:
    return f"**{median(values):,.0f}** ({min(values):,.0f} – {max(values):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure how Spark reads store files, beside Parquet."
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "STORE_FILES.md")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    spark = session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="roquet-bench-", dir=options.folder) as folder:
        rounds = measured(spark, Path(folder), options.messages, options.rounds)
    spark.stop()
    options.results.write_text(page(rounds, options.messages))


if __name__ == "__main__":
    main()
