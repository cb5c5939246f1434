"""What one task of a read has in memory at most, of bodies that are much larger than they are
stored.

python -m bench.read_memory
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from roquet import Message, Producer, dev

MIB: Final = 1 << 20
LINE: Final = (
    b'{"order": 4711, "state": "paid", "lines": [{"article": "book", "count": 1, "price": 12.5}]}\n'
)
CASES: Final[dict[str, tuple[int, Callable[[], bytes]]]] = {
    "60 x 4 MiB of zeros": (60, lambda: bytes(4 * MIB)),
    "300 x 4 MiB of zeros": (300, lambda: bytes(4 * MIB)),
    "600 x 4 MiB of zeros": (600, lambda: bytes(4 * MIB)),
    "300 x 1 MiB of one JSON line": (300, lambda: (LINE * (MIB // len(LINE) + 1))[:MIB]),
}


async def fill(name_server: str, topic: str, count: int, body: bytes) -> None:
    """All in one queue."""
    async with Producer(name_server, "bench") as producer:
        queue = (await producer.queues(topic))[0]
        for _ in range(count):
            await producer.send(Message(topic, body), queue=queue, timeout_ms=30_000)


def task(name_server: str, topic: str) -> None:
    """The queue read as a task of Spark's reads it; prints what came of it."""
    from roquet.spark._arrow.schema import SPARK_SCHEMA, arrow_schema
    from roquet.spark._options.ranges import partitions
    from roquet.spark._options.read import ReadOptions
    from roquet.spark._read.batch import plan, read

    schema = arrow_schema(
        type(SPARK_SCHEMA)([SPARK_SCHEMA[name] for name in ("queueOffset", "body")])
    )
    options = ReadOptions.of_batch({"nameserver": name_server, "subscribe": topic})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batches = rows = largest = 0
    for part in partitions(plan(options), options):
        for batch in read(part, options, schema):
            batches, rows, largest = batches + 1, rows + batch.num_rows, max(largest, batch.nbytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "rows": rows,
        "batches": batches,
        "largest": largest // MIB,
        "before": before // 1024,
        "peak": peak // 1024,
    }
    print(json.dumps(found))


async def run() -> None:
    print(
        "| topic | rows | batches | the largest, MiB | task before reading, MiB | at its peak, MiB |"
    )
    print("|---|---|---|---|---|---|")
    async with dev.Cluster() as cluster:
        for number, (name, (count, body)) in enumerate(CASES.items()):
            topic = f"Large-{number}"
            await fill(cluster.name_server, topic, count, body())
            words = [sys.executable, "-m", "bench.read_memory", cluster.name_server, topic]
            reading = await asyncio.create_subprocess_exec(
                *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            told, errors = await reading.communicate()
            if reading.returncode:
                print(f"| {name} | {errors.decode().strip().splitlines()[-1]} |", flush=True)
                continue
            found = json.loads(told)
            print(
                f"| {name} | " + " | ".join(str(each) for each in found.values()) + " |", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:]:
        task(*sys.argv[1:])
    else:
        asyncio.run(run())
