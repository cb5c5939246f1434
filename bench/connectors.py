"""Compares Spark connectors: roquet, Apache RocketMQ and Apache Kafka take turns at the same rows.

python -m bench.connectors [--rows N] [--rounds N] [--sizes BYTES,...] [--only BROKER]
    [--folder FOLDER] [--results FILE] [--readings FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.connector_job import Order
from bench.connector_page import (
    KAFKA,
    LARGE,
    LARGE_CONF,
    LARGE_PULL,
    PARQUET,
    READY,
    STORE,
    Reading,
    page,
)
from bench.couples import HEAP
from bench.kafka_broker import KafkaBroker, jars
from bench.options import Side
from bench.programs import (
    PYTHON,
    RoquetServer,
    apache_broker,
    broker_conf,
    compile_roquet,
    create_topic,
    name_server,
    roquet_broker,
)
from bench.ready_source import COLUMNS, make_ready
from roquet.spark._arrow.slices import slices
from tests.interop import wire
from tests.interop.apache import ApacheBroker
from tests.interop.processes import free_port, wait_until

TOPIC: Final = "rows"
WARM_TOPIC: Final = "warm"
SIZES: Final = (128, 1024)
QUEUES: Final = 4
FEW: Final = 10
"""What part of the rows is sent before, to warm up."""
SCHEMA: Final = "topic string, queueId int, queueOffset long, storeTimestamp timestamp, body binary"
KAFKA_COLUMNS: Final = ["topic", "partition", "offset", "timestamp", "value AS body"]
REPOSITORY: Final = Path(__file__).parents[1]
JOB_S_MAX: Final = 600


def make_rows(folder: Path, count: int, size: int) -> None:
    """Bodies that cannot be compressed and of which no two are the same, in a file for each
    queue.
    """
    folder.mkdir()
    chance = np.random.default_rng(size)
    each = count // QUEUES
    for number in range(QUEUES):
        bodies = chance.integers(0, 256, (each, size), np.uint8)
        edges = np.arange(each + 1) * size
        column = slices(bodies.reshape(-1), edges[:-1], edges[1:])
        pq.write_table(pa.table({"body": column}), folder / f"{number}.parquet")


def job(order: Order) -> dict[str, Any]:
    """What one process of Spark found."""
    command = [sys.executable, "-m", "bench.connector_job", order.text()]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | PYTHON,
        capture_output=True,
        text=True,
        timeout=JOB_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{order.format} failed:\n{done.stderr[-6000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Round:
    """One size of rows, each side with fresh processes and a fresh store."""

    def __init__(self, folder: Path, rows: Path, few: Path, *, streams: bool) -> None:
        self._folder = folder
        self._rows = rows
        self._few = few
        self._streams = streams

    def all(self, only: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Sides and what was found."""
        for name, work in {
            Side.ROQUET: self._with_roquet,
            Side.APACHE: self._with_apache,
            KAFKA: self._kafka,
        }.items():
            if only in (None, name):
                with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=self._folder) as folder:
                    yield from work(Path(folder))

    def _with_roquet(self, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The store that roquet's broker leaves is read as files and by a broker that may give more
        at once.
        """
        yield Side.ROQUET, self._rocketmq(Side.ROQUET, folder)
        yield STORE, job(self._store(folder))
        yield LARGE, self._large_pulls(folder)
        make_ready(folder / "read" / "few", folder / "ready")
        ready = Order(
            "ready", {"path": str(folder / "ready")}, SCHEMA, COLUMNS, str(folder / "from-ready")
        )
        yield READY, job(replace(ready, all_columns=False))
        options = {"path": str(folder / "read" / "all")}
        yield PARQUET, job(Order("parquet", options, None, COLUMNS, str(folder / "parquet")))

    def _with_apache(self, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        yield Side.APACHE, self._rocketmq(Side.APACHE, folder)

    def _rocketmq(self, side: Side, folder: Path) -> dict[str, Any]:
        with name_server(folder / "namesrv") as names:
            names.start()
            made = self._roquet if side is Side.ROQUET else self._apache
            with closing(made(folder, names.address)) as broker:
                broker.start()
                for topic in (TOPIC, WARM_TOPIC):
                    create_topic(broker.address, topic, QUEUES)
                    wait_until(
                        partial(wire.has_topic, names.address, topic),
                        f"a route of {topic}",
                    )
                found = self._both(
                    self._live(names.address, broker.pid), {"nameServer": names.address}, folder
                )
                broker.stop()
        return found

    def _roquet(self, folder: Path, names: str) -> RoquetServer | ApacheBroker:
        return roquet_broker(folder / "broker", names)

    def _apache(self, folder: Path, names: str) -> RoquetServer | ApacheBroker:
        return apache_broker(folder / "broker", names, HEAP)

    def _large_pulls(self, folder: Path) -> dict[str, Any]:
        with name_server(folder / "namesrv") as names:
            names.start()
            conf = (
                broker_conf(free_port(-2, 1), names.address, folder / "broker" / "store")
                | LARGE_CONF
            )
            with RoquetServer("broker", folder / "broker", conf) as broker:
                broker.start()
                wait_until(lambda: wire.has_topic(names.address, TOPIC), f"a route of {TOPIC}")
                order = self._live(names.address, broker.pid)
                options = order.options | {"pullBatchSize": str(LARGE_PULL)}
                found = job(
                    replace(order, options=options, folder=str(folder / "large"), streams=False)
                )
                broker.stop()
        return found

    def _live(self, names: str, broker_pid: int) -> Order:
        options = {"nameServer": names, "subscribe": TOPIC}
        return Order("rocketmq", options, SCHEMA, COLUMNS, "", broker_pid, streams=self._streams)

    def _kafka(self, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        with KafkaBroker(folder / "broker", QUEUES, HEAP) as broker:
            broker.start()
            server = {"kafka.bootstrap.servers": broker.address}
            options, path = server | {"subscribe": TOPIC}, jars()["connector"]
            order = Order(
                "kafka", options, None, KAFKA_COLUMNS, "", broker.pid, path, self._streams
            )
            yield KAFKA, self._both(order, server, folder)

    def _both(self, order: Order, server: dict[str, str], folder: Path) -> dict[str, Any]:
        """Written, then read: what was found of both."""
        order = replace(order, folder=str(folder))
        to = replace(order, options=server | {"topic": TOPIC}, warm_options={"topic": WARM_TOPIC})
        written = job(replace(to, rows=str(self._rows), few_rows=str(self._few)))
        found = job(order)
        assert found["sums"] == written["sums"], (
            f"{order.format}: sent {written['sums']}, read {found['sums']}"
        )
        return written | found

    def _store(self, folder: Path) -> Order:
        options = {"path": str(folder / "broker" / "store"), "subscribe": TOPIC}
        return Order("rocketmq-store", options, SCHEMA, COLUMNS, str(folder / "from-store"))


def measured(
    folder: Path, options: argparse.Namespace, size: int, number: int
) -> Iterator[Reading]:
    rows, few = folder / f"rows-{size}", folder / f"few-{size}"
    if not rows.exists():
        make_rows(rows, options.rows, size)
        make_rows(few, options.rows // FEW, size)
    for side, found in Round(folder, rows, few, streams=size == SIZES[0]).all(options.only):
        sums = found.pop("sums")
        for name, value in found.items():
            print(f"round {number}, {size} bytes, {side}: {name} {value:,.2f}", flush=True)
        yield Reading(size, side, found, sums)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Measure Spark's connectors to roquet, Apache RocketMQ and Kafka."
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("CONNECTORS.md"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--sizes", default=SIZES, type=lambda text: [int(size) for size in text.split(",")]
    )
    parser.add_argument(
        "--only", choices=(Side.ROQUET, Side.APACHE, KAFKA), help="the broker to measure with"
    )
    parser.add_argument(
        "--readings", type=Path, help="add to the readings there, and show all of them"
    )
    options = parser.parse_args(arguments)
    compile_roquet()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-", dir=options.folder) as folder:
        kept = options.readings or Path(folder) / "readings"
        with open(kept, "a") as file:
            for number in range(1, options.rounds + 1):
                for size in options.sizes:
                    for reading in measured(Path(folder), options, size, number):
                        print(json.dumps(reading._asdict()), file=file, flush=True)
        readings = [Reading(**json.loads(line)) for line in kept.read_text().splitlines()]
    if not options.only:
        options.results.write_text(page(readings, options.rows))


if __name__ == "__main__":
    main()
