"""Replication: roquet's couple of master and slave and Apache's in turn, in the same run.

python -m bench.ha [--folder FOLDER] [--results FILE] [--rounds N]
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import procfs
from bench.couples import HEAP, TOPIC, Couple, log_end, queue_end_asker, queue_ends
from bench.in_turn import Figure, Page, higher, lower, percentiles, run
from bench.loads import Load
from bench.options import Side
from bench.programs import name_server, start_benchmark
from bench.readings import Readings
from bench.store import TOPIC as STORED_TOPIC
from bench.store import opened, put
from roquet.client.producer import Producer
from roquet.protocol.records.message import Message
from tests.interop import wire
from tests.interop.apache import Version, start_driver
from tests.interop.processes import wait_until

GIB: Final = 1 << 30
CATCH_UP_BYTES: Final = 2 * GIB + (GIB >> 2)
CATCH_UP_BODY: Final = 1024
SEED_BYTES: Final = 1 << 20
"""Of the log, that a slave has before it catches up: an empty one would begin at the last file."""
LAG_S: Final = 10.0
RATE_S: Final = 10.0
WARMUP_S: Final = 15.0
LATENCY_S: Final = 5.0
THREADS: Final = (1, 16, 64)
BACKLOG: Final = 300_000
KILL_AFTER: Final = 2_000
STALL_S_MAX: Final = 120.0


class Place:
    """Where the couples of one round live."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"

    def full_store(self) -> Path:
        """With 2.25 GiB in its log; made once."""
        if not self.log.exists():
            write_log(self.log)
        return self.log

    def couple(self, stack: ExitStack, side: Side, role: str) -> Couple:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix=f"roquet-ha-{side}-", dir=self.folder)
            )
        )
        names = stack.enter_context(name_server(folder / "namesrv"))
        names.start()
        couple = Couple(side, folder, names.address, role)
        stack.callback(couple.close)
        return couple


def write_log(folder: Path) -> None:
    store = opened(folder)
    count = 100_000
    first, body = 0, bytes(CATCH_UP_BODY)
    while store.log.end < CATCH_UP_BYTES:
        put(store, count, body, first)
        first += count
    store.close()


def seed(log: Path, store: Path) -> int:
    """Give a slave the beginning of the log, up to where a record ends; how many bytes."""
    source = opened(log)
    end = next(at for at, _ in source.log.walk(source.log.start) if at > SEED_BYTES)
    data = bytes(source.log.read(source.log.start, end))
    source.close()
    (store / "commitlog").mkdir(parents=True)
    with open(store / "commitlog" / f"{0:020}", "wb") as file:
        file.truncate(GIB)
        file.write(data)
    (store / "abort").touch()
    return end


def catching_up(side: Side, place: Place) -> Iterator[Figure]:
    with ExitStack() as stack:
        couple = place.couple(stack, side, "ASYNC_MASTER")
        shutil.copytree(place.full_store(), couple.folder / "master" / "store")
        begin = seed(place.log, couple.folder / "slave" / "store")
        couple.start(couple.master)
        wait_until(
            lambda: log_end(couple.master_address) >= CATCH_UP_BYTES,
            "the master to know its log",
            300,
        )
        end, count = log_end(couple.master_address), queue_ends(couple.master_address, STORED_TOPIC)
        couple.start(couple.slave)
        wait_until(lambda: log_end(couple.slave_address) > begin, "the slave to begin")
        pids = couple.master.pid, couple.slave.pid
        before, start = [procfs.cpu_s(pid) for pid in pids], time.perf_counter()
        copied = log_end(couple.slave_address)
        assert begin < copied < end
        wait_until(lambda: log_end(couple.slave_address) >= end, "the log to be copied", 600)
        taken = time.perf_counter() - start
        wait_until(
            lambda: queue_ends(couple.slave_address, STORED_TOPIC) == count,
            "the queues to be full",
            600,
        )
        dispatched = time.perf_counter() - start
        cpu = [procfs.cpu_s(pid) - spent for pid, spent in zip(pids, before, strict=True)]
        size = (end - copied) / 1e6
        yield higher("catching up: MB/s", size / taken)
        yield higher("catching up, queues and index made: MB/s", size / dispatched)
        yield higher(
            "catching up, queues and index made: messages/s",
            count * (end - copied) / end / dispatched,
        )
        yield lower("catching up: master's CPU, ms/MB", cpu[0] * 1e3 / size)
        yield lower("catching up: slave's CPU, ms/MB", cpu[1] * 1e3 / size)


def lag(side: Side, place: Place) -> Iterator[Figure]:
    """The ends of one queue are asked for again and again while four threads send 1 KiB to it."""
    with ExitStack() as stack:
        couple = place.couple(stack, side, "ASYNC_MASTER")
        couple.start()
        couple.follow()
        load = Load("lag", "", "Producer", ("-w", "4", "-s", "1024"))
        client = start_benchmark(load, couple.names, couple.folder / "client", topic=TOPIC)
        stack.enter_context(client)
        time.sleep(WARMUP_S)
        seen: list[list[tuple[float, int]]] = [[], []]
        askers = [
            stack.enter_context(queue_end_asker(address))
            for address in (couple.master_address, couple.slave_address)
        ]
        until = time.perf_counter() + LAG_S
        while time.perf_counter() < until:
            for looks, (link, request) in zip(seen, askers, strict=True):
                link.sendall(request)
                offset = int(wire.read_answer(link).header["extFields"]["offset"])
                looks.append((time.perf_counter(), offset))
        yield from percentiles("lag under load", list(lags_ms(*seen)))


def lags_ms(
    master: Sequence[tuple[float, int]], slave: Sequence[tuple[float, int]]
) -> Iterator[float]:
    """For each look at the master, how long it was until the slave had as much."""
    later = iter(slave)
    at, has = next(later)
    for moment, offset in master:
        while has < offset or at < moment:
            try:
                at, has = next(later)
            except StopIteration:
                return
        yield (at - moment) * 1e3


def sync_sends(side: Side, place: Place) -> Iterator[Figure]:
    with ExitStack() as stack:
        couple = place.couple(stack, side, "SYNC_MASTER")
        couple.start()
        couple.follow()
        for threads in THREADS:
            load = Load(f"sync-{threads}", "", "Producer", ("-w", str(threads), "-s", "128"))
            with start_benchmark(load, couple.names, couple.folder / load.name) as client:
                readings = Readings(load, client, couple.master)
                readings.wait(WARMUP_S)
                window = readings.window(RATE_S)
            yield higher(f"SYNC_MASTER, {threads} threads: messages/s", window.messages_per_s)
        for threads in THREADS:
            times = asyncio.run(latencies_ms(couple.names, threads))
            yield from percentiles(f"SYNC_MASTER, {threads} under way, roquet's client", times)


async def latencies_ms(names: str, tasks: int) -> list[float]:
    times: list[float] = []
    async with Producer(names, "latency") as producer:
        start = time.perf_counter()

        async def go_on() -> None:
            while (begin := time.perf_counter()) < start + LATENCY_S:
                await producer.send(TOPIC, bytes(128))
                times.append((time.perf_counter() - begin) * 1e3)

        await asyncio.gather(*(go_on() for _ in range(tasks)))
    return times[len(times) // 5 :]


def taking_over(side: Side, place: Place) -> Iterator[Figure]:
    """A Java consumer with a backlog before it; its master is killed: for how long it gets
    nothing.
    """
    with ExitStack() as stack:
        couple = place.couple(stack, side, "SYNC_MASTER")
        couple.start()
        couple.follow()
        asyncio.run(write(couple.names, BACKLOG))
        words = (
            "consume",
            couple.names,
            TOPIC,
            "taking-over",
            BACKLOG,
            int(STALL_S_MAX) * 2,
            "--cache",
            200,
        )
        consumer = stack.enter_context(start_driver(Version.V4, *words, "--threads", 1))
        output = consumer.directory / "out"
        wait_until(
            lambda: output.read_bytes().count(b"\n") > KILL_AFTER, "the consumer to be on its way"
        )
        couple.master.kill()
        killed = time.perf_counter()
        size, grew, stall = output.stat().st_size, killed, 0.0
        while time.perf_counter() - grew < STALL_S_MAX and (
            stall < 1 or time.perf_counter() - grew < 3
        ):
            time.sleep(0.002)
            now = time.perf_counter()
            if output.stat().st_size != size:
                size, stall, grew = output.stat().st_size, max(stall, now - grew), now
        yield lower("from the master's death to the first message from the slave: s", stall)


async def write(names: str, count: int) -> None:
    async with Producer(names, "backlog") as producer:
        for _ in range(count // 250):
            await producer.send_batch([Message(TOPIC, bytes(32)) for _ in range(250)])


MEASURED: Final[Sequence[Callable[[Side, Place], Iterator[Figure]]]] = (
    catching_up,
    lag,
    sync_sends,
    taking_over,
)


PAGE: Final = Page(
    "bench.ha",
    "Replication: roquet's couple and Apache's 4.9.7, side by side",
    (
        "catching up: 2.25 GiB of messages of 1 KiB; the slave has the first MiB, as an empty one would begin at the"
        " last file",
        "lag: from the moment in which the master has a message until the slave shows it in its queue; 4 threads of"
        " Apache's benchmark send 1 KiB to one queue; the ends of the queue at both are asked for again and again",
        "taking over: a Java push consumer of 4.9.7 in the middle of a backlog, the master dies by kill -9",
    ),
)

if __name__ == "__main__":
    run(PAGE, MEASURED, Place, Path(__file__).with_name("HA.md"), HEAP)
