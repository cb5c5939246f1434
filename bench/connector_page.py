"""The page of `bench.connectors`: a table for each size of rows, the connectors beside each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Final, NamedTuple

from bench import machine
from bench.connector_job import PASSES, WARM_UPS
from bench.in_turn import spread
from bench.options import Side

STORE: Final = "store"
LARGE: Final = "large pulls"
LARGE_PULL: Final = 1024
LARGE_CONF: Final = {
    "maxTransferCountOnMessageInMemory": LARGE_PULL,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
}
"""Beyond Apache's defaults, 32 and 256 KiB."""
PARQUET: Final = "parquet"
READY: Final = "ready"
KAFKA: Final = "kafka"
SIDES: Final = {
    Side.ROQUET: "`rocketmq`, roquet's broker",
    LARGE: "the same with large pulls",
    Side.APACHE: "`rocketmq`, Apache's broker",
    STORE: "`rocketmq-store`, roquet's files",
    KAFKA: "`kafka`, Kafka's broker",
    READY: "a Python source with nothing to do",
    PARQUET: "`parquet`: the same rows",
}


class Reading(NamedTuple):
    """What one side came to in one round: figures by their names in `TABLES`, count and checksum of
    the rows read.
    """

    size: int
    side: str
    figures: dict[str, float]
    sums: Sequence[int]


class Table(NamedTuple):
    """Columns are figures; a ratio stands behind the first, to Kafka's."""

    title: str
    figures: dict[str, str]
    sides: Sequence[str]


LIVE: Final = (Side.ROQUET, Side.APACHE, KAFKA)
TABLES: Final = (
    Table(
        "Topic to Parquet, five columns",
        {
            "few: rows/s": "rows/s",
            "few: CPU": "CPU of Spark, µs/row",
            "few: broker's CPU": "of the broker, µs/row",
        },
        tuple(SIDES),
    ),
    Table(
        "Topic to Parquet, all columns: RocketMQ's 18, Kafka's 7",
        {
            "all: rows/s": "rows/s",
            "all: CPU": "CPU of Spark, µs/row",
            "all: broker's CPU": "of the broker, µs/row",
        },
        tuple(side for side in SIDES if side != READY),
    ),
    Table(
        "Parquet to topic",
        {
            "sink: rows/s": "rows/s",
            "sink: CPU": "CPU of Spark, µs/row",
            "sink: broker's CPU": "of the broker, µs/row",
        },
        LIVE,
    ),
    Table(
        "Micro-batches",
        {
            "batch, ms": "1,000 rows, ms",
            "look, ms": "nothing new, ms",
            "idle, % of a core": "CPU while idle, % of a core",
        },
        LIVE,
    ),
    Table(
        "Start and memory",
        {
            "first row, s": "from `import pyspark` to the first row, s",
            "Java, MiB": "Java, MiB",
            "Python, MiB": "the driver's Python, MiB",
        },
        tuple(SIDES),
    ),
)


def page(readings: Sequence[Reading], rows: int) -> str:
    sizes = sorted({reading.size for reading in readings})
    for size in sizes:
        found = {tuple(reading.sums) for reading in readings if reading.size == size}
        assert len(found) == 1, f"sides read other rows: {found}"
    rounds = {
        size: sum(each.size == size and each.side == KAFKA for each in readings) for size in sizes
    }
    said = ", ".join(f"{count} with {size:,} bytes" for size, count in rounds.items())
    lines = [
        "# Spark's connectors: RocketMQ's by roquet, and Kafka's",
        "",
        f"- {datetime.now(UTC).date()}, `python -m bench.connectors`; rounds: {said}; medians (least – greatest)",
        f"- {machine.describe()}; Spark {machine.version_of('pyspark')} on local[2] with a driver of 2 GiB, and the"
        " broker, over loopback",
        f"- {machine.describe_python()}; {machine.describe_java()}; brokers: roquet, Apache RocketMQ 4.9.7 and Apache"
        " Kafka 4.1.0 (KRaft, one node), each of these with a heap of 1 GiB",
        "- Kafka's connector is that of Spark 4.2.0 with the token provider of 4.0.0, the newest that could be had",
        f"- {rows:,} rows with bodies that cannot be compressed; 4 queues or partitions; each side has a fresh store"
        " and fresh processes; what is read is what the sink wrote: counts and checksums of bodies are compared, and"
        " are the same on all sides",
        "- acknowledged: by roquet's and Apache's broker when it is in memory (ASYNC_FLUSH), by Kafka's with acks=all,"
        " which is the same on one node; nobody waits for the disk. Sinks are set as they come",
        "- five columns: topic, queue, offset, time and body; before a figure is taken the same is done"
        f" {WARM_UPS + 1} times to warm up, with all columns once, and once by sinks with a tenth of the rows; five"
        f" columns are then read {PASSES} times in each round, of which the median counts",
        f"- large pulls: `pullBatchSize={LARGE_PULL}`, and in the broker's configuration "
        + ", ".join(f"`{name}={value}`" for name, value in LARGE_CONF.items()),
        "- a Python source with nothing to do hands Arrow files to Spark as they are: what Spark itself takes to get"
        " rows out of Python and into Parquet",
        "- micro-batches: no pause between triggers, rows go nowhere; Java's memory is that of driver and executor, at"
        " the end; Python's is without the workers",
    ]
    for size in sizes:
        for table in (
            table for table in TABLES if _values(next(iter(table.figures)), size, KAFKA, readings)
        ):
            lines += ["", f"## {size:,} bytes: {table.title}", "", *_lines(table, size, readings)]
    return "\n".join(lines) + "\n"


def _lines(table: Table, size: int, readings: Sequence[Reading]) -> Iterator[str]:
    first, *others = table.figures.values()
    yield f"| | {' | '.join((first, '/ Kafka', *others))} |"
    yield f"|{' --- |' * (len(table.figures) + 2)}"
    for side in (
        side for side in table.sides if _values(next(iter(table.figures)), size, side, readings)
    ):
        each = [_values(name, size, side, readings) for name in table.figures]
        ratio = median(each[0]) / median(_values(next(iter(table.figures)), size, KAFKA, readings))
        shown = [spread(values) for values in each]
        yield f"| {SIDES[side]} | {' | '.join((shown[0], f'{ratio:.2f}', *shown[1:]))} |"


def _values(name: str, size: int, side: str, readings: Sequence[Reading]) -> list[float]:
    return [
        each.figures[name]
        for each in readings
        if each.size == size and each.side == side and name in each.figures
    ]
