"""One side's part of `bench.connectors`, in an interpreter of its own: reads or writes by one
connector.

python -m bench.connector_job ORDER: the order and the figures printed are JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench import procfs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS: Final = 1000
ROUNDED: Final = 4
"""So many rows a batch may be off: sources share it out between queues, in whole rows."""
BATCHES_LEFT_OUT: Final = 5
BATCHES: Final = 20
IDLE_S: Final = 3.0
POLL_S: Final = 0.01
"""How long Spark waits after a look that found nothing."""
CORES: Final = 2
WARM_UPS: Final = 3
"""So often a read of few columns is done before it is measured: of one alone Java spends half the
time compiling.
"""
PASSES: Final = 3
"""So often a read of few columns is measured; the medians count, since one of them takes two
seconds.
"""


@dataclass(frozen=True)
class Order:
    """What to do by which connector.

    `schema` and `columns` are what is read beside all columns: for a source that takes a schema,
    and for one that does not. `broker_pid` is 0 where there is none. `rows` are the files to write,
    `few_rows` those before, to warm up.
    """

    format: str
    options: dict[str, str]
    schema: str | None
    columns: list[str]
    folder: str
    broker_pid: int = 0
    class_path: str = ""
    streams: bool = False
    all_columns: bool = True
    rows: str = ""
    few_rows: str = ""
    warm_options: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))


def started(order: Order) -> SparkSession:
    from roquet.spark.session import session

    conf = {
        "spark.master": f"local[{CORES}]",
        "spark.driver.memory": "2g",
        "spark.local.dir": order.folder,
    }
    if order.class_path:
        conf["spark.driver.extraClassPath"] = order.class_path
    spark = session("bench", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    if order.format == "ready":
        from bench.ready_source import ReadySource

        spark.dataSource.register(ReadySource)
    return spark


class Work:
    """Time since it began, and what Spark's and the broker's processes used meanwhile."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self._begun, self._cpu, self._broker_cpu = self._now()

    def _now(self) -> tuple[float, float, float]:
        broker = procfs.cpu_s(self._broker_pid) if self._broker_pid else 0.0
        return time.perf_counter(), procfs.tree_cpu_s(os.getpid()), broker

    def figures(self, name: str, rows: int) -> dict[str, float]:
        """Rows a second and µs of CPU per row, once it is done."""
        now, cpu, broker = self._now()
        return {
            f"{name}: rows/s": rows / (now - self._begun),
            f"{name}: CPU": (cpu - self._cpu) / rows * 1e6,
            f"{name}: broker's CPU": (broker - self._broker_cpu) / rows * 1e6,
        }


def sums(frame: DataFrame, column: str) -> tuple[int, int]:
    """The count of rows and a checksum of a column that does not depend on their order."""
    found = frame.selectExpr("count(*)", f"sum(crc32({column}))").first()
    assert found is not None
    return int(found[0]), int(found[1] or 0)


def load(spark: SparkSession, order: Order, schema: str | None) -> DataFrame:
    reader = spark.read.format(order.format).options(**order.options)
    return (reader.schema(schema) if schema else reader).load()


def read(order: Order) -> dict[str, Any]:
    begun = time.perf_counter()
    spark = started(order)
    first = load(spark, order, order.schema).selectExpr(*order.columns).take(1)
    figures: dict[str, Any] = {"first row, s": time.perf_counter() - begun}
    assert len(first) == 1, "there is no row"
    few = load(spark, order, order.schema).selectExpr(*order.columns)
    place = Path(order.folder) / "read"
    few.write.mode("overwrite").parquet(str(place / "few"))
    figures["sums"] = sums(spark.read.parquet(str(place / "few")), "body")
    body = "value" if order.format == "kafka" else "body"
    measured = [("few", few, "body", WARM_UPS, PASSES)]
    if order.all_columns:
        measured.append(("all", load(spark, order, None), body, 1, 1))
    for name, frame, column, warm_ups, passes in measured:
        to = str(place / name)
        for _ in range(warm_ups):
            frame.write.mode("overwrite").parquet(to)
        found = []
        for _ in range(passes):
            work = Work(order.broker_pid)
            frame.write.mode("overwrite").parquet(to)
            found.append(work.figures(name, figures["sums"][0]))
            assert sums(spark.read.parquet(to), column) == figures["sums"], (
                f"{name}: rows are wrong"
            )
        figures |= {figure: median(each[figure] for each in found) for figure in found[0]}
    if order.streams:
        figures |= stream(spark, order)
    return figures | memory(spark)


def memory(spark: SparkSession) -> dict[str, float]:
    context = spark.sparkContext
    assert context._gateway is not None
    java: int = context._gateway.proc.pid
    return {
        "Java, MiB": procfs.memory(java).resident / 2**20,
        "Python, MiB": procfs.memory(os.getpid()).resident / 2**20,
    }


def query(spark: SparkSession, order: Order, name: str, options: dict[str, str]) -> StreamingQuery:
    reader = spark.readStream.format(order.format).options(**order.options, **options)
    frame = (
        (reader.schema(order.schema) if order.schema else reader).load().selectExpr(*order.columns)
    )
    checkpoint = str(Path(order.folder) / f"checkpoint-{name}")
    return frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()


def stream(spark: SparkSession, order: Order) -> dict[str, float]:
    """int of a batch, of a look that finds nothing, and how busy Spark is while nothing
    comes.
    """
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    running = query(
        spark,
        order,
        "batches",
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS)},
    )
    done = wait_for(running, BATCHES_LEFT_OUT + BATCHES)[BATCHES_LEFT_OUT:]
    running.stop()
    off = max(abs(each["numInputRows"] - BATCH_ROWS) for each in done)
    assert off <= ROUNDED, f"a batch is {off} rows off"
    return {"batch, ms": median(each["durationMs"]["triggerExecution"] for each in done)} | idle(
        spark, order
    )


def wait_for(running: StreamingQuery, count: int) -> list[Any]:
    """The progress of so many batches."""
    give_up = time.monotonic() + 120
    while True:
        done = [each for each in running.recentProgress if each["numInputRows"]]
        if len(done) >= count:
            return done[:count]
        assert running.isActive, running.exception()
        assert time.monotonic() < give_up, f"{len(done)} batches are done"
        time.sleep(0.1)


def idle(spark: SparkSession, order: Order) -> dict[str, float]:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    looks: list[datetime] = []

    class Looks(StreamingQueryListener):
        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
            looks.append(datetime.fromisoformat(event.timestamp))

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    listener = Looks()
    spark.streams.addListener(listener)
    running = query(spark, order, "idle", {"startingOffsets": "latest"})
    time.sleep(IDLE_S)
    looks.clear()
    begun, cpu = time.perf_counter(), procfs.tree_cpu_s(os.getpid())
    time.sleep(IDLE_S)
    share = (procfs.tree_cpu_s(os.getpid()) - cpu) / (time.perf_counter() - begun)
    spark.streams.removeListener(listener)
    running.stop()
    assert len(looks) > 1, "the stream does not look for rows"
    look_s = (looks[-1] - looks[0]).total_seconds() / (len(looks) - 1)
    return {"look, ms": (look_s - POLL_S) * 1e3, "idle, % of a core": share * 100}


def write(order: Order) -> dict[str, Any]:
    spark = started(order)

    def send(rows: str, options: dict[str, str]) -> None:
        frame = spark.read.parquet(rows)
        if order.format == "kafka":
            frame = frame.withColumnRenamed("body", "value")
        frame.write.format(order.format).mode("append").options(
            **{**order.options, **options}
        ).save()

    send(order.few_rows, order.warm_options)
    frame = spark.read.parquet(order.rows)
    figures: dict[str, Any] = {"sums": sums(frame, "body")}
    work = Work(order.broker_pid)
    send(order.rows, {})
    return figures | work.figures("sink", figures["sums"][0])


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    figures = write(order) if order.rows else read(order)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
