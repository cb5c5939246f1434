"""One load against one broker: fresh processes and an empty store, a warm-up, windows one after the
other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import procfs
from bench.loads import Load
from bench.options import Options, Side
from bench.procfs import Memory
from bench.profiling import Profile
from bench.programs import RoquetServer, apache_broker, name_server, roquet_broker, start_benchmark
from bench.readings import Readings, Window
from bench.requests import FirstSend, unread, write_backlog
from tests.interop import wire
from tests.interop.apache import ApacheBroker
from tests.interop.processes import wait_until

STORED_AFTER_S: Final = 6.0
"""A consumer stores its progress every five seconds: it may be ahead of what is stored by so
much.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What one load did to one broker. `start_s` is from the broker's start to the first message it
    acknowledged.
    """

    load: str
    side: Side
    round: int
    start_s: float
    windows: tuple[Window, ...]
    memory: Memory


def measure(load: Load, side: Side, number: int, options: Options, profile: Profile) -> Run:
    """One run; all that it started is gone when this returns."""
    with (
        TemporaryDirectory(prefix=f"roquet-bench-{side}-", dir=options.folder) as folder,
        ExitStack() as stack,
    ):
        names = stack.enter_context(name_server(Path(folder, "namesrv")))
        names.start()
        home = Path(folder, "broker")
        broker: RoquetServer | ApacheBroker = (
            roquet_broker(home, names.address, profile.under)
            if side is Side.ROQUET
            else apache_broker(home, names.address, options.heap)
        )
        stack.callback(broker.close)
        start_s = _start(broker, names.address)
        if load.drains:
            write_backlog(broker.address, options.backlog)
        client = stack.enter_context(start_benchmark(load, names.address, Path(folder, "client")))
        readings = Readings(load, client, broker)
        readings.wait(options.warmup_s)
        with profile.attached(broker.pid):
            windows = tuple(_windows(load, broker.address, readings, options))
        memory = procfs.memory(broker.pid)
        client.kill()
        if profile.needs_end:
            broker.stop()
        return Run(load.name, side, number, start_s, windows, memory)


def _start(broker: RoquetServer | ApacheBroker, names: str) -> float:
    """Seconds until a client that was there before it could send; returns when clients find it,
    too.
    """
    client = FirstSend(broker.address)
    client.start()
    begin_s = time.perf_counter()
    broker.start()
    acknowledged_s = client.acknowledged_s()
    wait_until(lambda: wire.has_broker(names, broker.address), f"{broker.address} to be listed")
    return acknowledged_s - begin_s


def _windows(load: Load, broker: str, readings: Readings, options: Options) -> Iterator[Window]:
    """As many as are asked for, fewer where a backlog ends before."""
    for number in range(options.windows):
        window = readings.window(options.window_s)
        if load.drains and unread(broker) <= STORED_AFTER_S * window.messages_per_s:
            if number == 0:
                raise RuntimeError(
                    "the backlog may have ended within the first window: give a larger --backlog"
                )
            return
        yield window
