"""What a client costs that has just been started: its first message, its memory, its modules.

python -m bench.client_start [--runs 9] [--messages 1000]

Each run is a fresh Python that sends and receives; the broker runs in this process. Printed are
medians, beside those of a program that only runs asyncio. CPU time is the process's until the first
message is acknowledged, its start included: other processes hardly change that figure.
Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from statistics import median
from typing import Final

from bench.machine import describe_python
from roquet.dev import Cluster

UNITS: Final = {"first_message_ms": "ms", "cpu_time_ms": "ms", "resident_mib": "MiB", "modules": ""}

BEGIN: Final = """
import time
began = time.perf_counter()
import asyncio, json, os, sys

def times():
    return {
        "first_message_ms": (time.perf_counter() - began) * 1000,
        "cpu_time_ms": time.process_time() * 1000,
    }
"""

ASYNCIO: Final = """
async def main(*_):
    return times()
"""

CLIENT: Final = """
import roquet

async def main(name_server, topic, count):
    async with roquet.Producer(name_server, topic, timeout_ms=60_000) as producer:
        await producer.send(topic, b"0")
        found = times()
        for number in range(1, int(count)):
            await producer.send(topic, b"%d" % number)
    async with roquet.Consumer(name_server, topic, topic, "earliest") as consumer:
        received = 0
        async for message in consumer:
            async with message:
                received += 1
            if received == int(count):
                return found
"""

END: Final = """
found = asyncio.run(main(*sys.argv[1:]))
with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[1])
found["resident_mib"] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
found["modules"] = len(sys.modules)
print(json.dumps(found))
"""


async def measured(
    program: str, *arguments: str, environment: Mapping[str, str]
) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        BEGIN + program + END,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    output, _ = await process.communicate()
    figures: dict[str, float] = json.loads(output)
    return figures


async def main(runs: int, messages: int) -> None:
    found: dict[str, list[dict[str, float]]] = {"asyncio": [], "client": []}
    with tempfile.TemporaryDirectory() as cache:  # of byte code, as an installation has it
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        async with Cluster() as cluster:
            for number in range(runs + 1):
                base = await measured(ASYNCIO, environment=environment)
                client = await measured(
                    CLIENT,
                    cluster.name_server,
                    f"topic-{number}",
                    str(messages),
                    environment=environment,
                )
                if number:  # the first run made the byte code
                    found["asyncio"].append(base)
                    found["client"].append(client)
    print(describe_python())
    print(f"medians of {runs} runs, {messages} messages sent and received")
    for name, unit in UNITS.items():
        of_asyncio, of_client = (
            median(each[name] for each in found[program]) for program in ("asyncio", "client")
        )
        print(
            f"{name:>18}: {of_client:7.1f} {unit}  (asyncio alone: {of_asyncio:.1f} {unit})".rstrip()
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--messages", type=int, default=1000)
    options = parser.parse_args()
    asyncio.run(main(options.runs, options.messages))
