"""How fast the store is by itself, beside what the machine does with the same bytes in the same
run.

python -m bench.store [--folder FOLDER] [--results FILE] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench import machine
from roquet.common.runtime import wall_clock_ms
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.layout import BLANK_SIZE, blank
from roquet.storage.batch_records import BatchItem, BatchRecords
from roquet.storage.config import StoreConfig
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store

TOPIC: Final = "BenchmarkTest"
QUEUES: Final = 16
GROUP: Final = 32
BYTES: Final = 128 << 20
"""Of bodies, at most, in one measurement of appends."""
COUNT_MAX: Final = 200_000
SYNC_S: Final = 2.0
GIB: Final = 1 << 30
TAIL: Final = 100_000
"""Messages after the last checkpoint of a store that is recovered."""


class Row(NamedTuple):
    """One figure: what it is, ours, and where there is one the machine's own and what that is."""

    name: str
    figure: float
    own: float = 0
    what: str = ""


def opened(folder: Path) -> Store:
    store = Store(StoreConfig(folder, [folder / "commitlog"]), wall_clock_ms)
    store.open()
    return store


@contextmanager
def fresh(folder: Path) -> Iterator[Store]:
    """An empty store that is gone afterwards."""
    place = Path(tempfile.mkdtemp(dir=folder))
    store = opened(place)
    try:
        yield store
    finally:
        store.abandon()
        shutil.rmtree(place)


def properties(number: int) -> tuple[bytes, bytes]:
    """A unique key, and the properties with it, as a Java producer has them."""
    key = b"7F0000010001%024X" % number
    return key, b"UNIQ_KEY\x01%b\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster" % key


def put(store: Store, count: int, body: bytes, first: int = 0) -> None:
    """Append messages one at a time, 32 to a turn of the loop, as a busy broker does."""
    queues = [store.queue(TOPIC, number) for number in range(QUEUES)]
    for number in range(first, first + count):
        key, text = properties(number)
        record = NewRecord(queues[number % QUEUES], body, text, 0, 0, 1, bytes(8), bytes(8))
        store.writer.append(record, (key,))
        if number % GROUP == 0:
            store.end_turn()
    store.end_turn()


def put_groups(store: Store, count: int, body: bytes) -> None:
    """Append batches of 32."""
    queues = [store.queue(TOPIC, number) for number in range(QUEUES)]
    for first in range(0, count, GROUP):
        pairs = [properties(number) for number in range(first, first + GROUP)]
        queue = queues[first // GROUP % QUEUES]
        records = BatchRecords(queue.topic_bytes, queue.queue_id, 0, 1, bytes(8), bytes(8))
        for key, text in pairs:
            records.add(BatchItem(0, body, text, (key,), 0))
        store.writer.append_batch(queue, records)
        store.end_turn()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def copy_into_file(folder: Path, size: int, chunk: bytes) -> float:
    """Seconds that it takes to write so many bytes to a new file, without more ado."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return seconds(lambda: [file.write(chunk) for _ in range(size // len(chunk))])


def appends(folder: Path) -> Iterator[Row]:
    """Messages and bytes of the log a second, beside plain writes of as many bytes to a file."""
    for size, name in ((128, "128 B"), (1024, "1 KiB"), (65536, "64 KiB")):
        body, count = (
            bytes(range(97, 123)) * (size // 26 + 1),
            min(COUNT_MAX, BYTES // size) // GROUP * GROUP,
        )
        body = body[:size]
        for kind, work in (("one at a time", put), ("in batches of 32", put_groups)):
            with fresh(folder) as store:
                taken = seconds(partial(work, store, count, body))
                written = store.log.end
            plain = written / copy_into_file(folder, written, bytes(256 * 1024)) / 1e6
            yield Row(f"append, {name}, {kind}: messages/s", count / taken)
            yield Row(f"append, {name}, {kind}: MB/s", written / taken / 1e6, plain, "file.write")


def syncs(folder: Path) -> Iterator[Row]:
    """Messages a second when each group of them waits for one fdatasync, beside fdatasyncs of a
    file by itself.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < SYNC_S:
            os.pwrite(file.fileno(), bytes(350), done * 350)
            os.fdatasync(file.fileno())
            done += 1
        alone = done / (time.perf_counter() - start)
    for waiting in (1, 16, 256):
        with fresh(folder) as store:
            done, start = 0, time.perf_counter()
            while time.perf_counter() - start < SYNC_S:
                put(store, waiting, bytes(128), done)
                store.log.sync_work(store.log.end)()
                store.log.synced(store.log.end)
                done += waiting
            rate = done / (time.perf_counter() - start)
            yield Row(f"SYNC_FLUSH, {waiting} waiting: messages/s", rate, alone, "fdatasync/s")


def dispatch(folder: Path) -> Iterator[Row]:
    """Records a second from a log without queues and index into both."""
    with fresh(folder) as master:
        put(master, COUNT_MAX, bytes(128))
        with fresh(folder) as copy:
            copy.log.replicate(copy.log.end, master.log.read(master.log.start, master.log.end))
            size = copy.log.end
            taken = seconds(copy.replicated)
        read = seconds(lambda: bytes(master.log.read(master.log.start, size)))
        yield Row("dispatch: records/s", COUNT_MAX / taken)
        yield Row("dispatch: MB/s", size / taken / 1e6, size / read / 1e6, "memcpy")


def drain(store: Store) -> int:
    """Read all queues to their end; bytes that came."""
    read, everything = 0, TagFilter()
    for queue in store.queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            fetched = store.fetch(queue.topic, queue.queue_id, offset, 32, everything)
            read += sum(map(len, fetched.records))
            offset = fetched.next_offset
    return read


def forget_pages(folder: Path) -> None:
    """Let the system's cache give up the files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read_files(folder: Path, size: int) -> float:
    """Seconds for so many bytes of the log, read plainly from one end to the other."""
    (path,) = sorted((folder / "commitlog").iterdir())[:1]
    with path.open("rb", buffering=0) as file:
        return seconds(lambda: [file.read(256 * 1024) for _ in range(size // (256 * 1024))])


def reads(folder: Path) -> Iterator[Row]:
    """Bytes a second by pulls of 32, from memory and from the drive, beside a plain read of the
    log's file.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    store = opened(place)
    put(store, COUNT_MAX, bytes(1024))
    store.close()
    for kind in ("warm", "cold"):
        if kind == "cold":
            forget_pages(place)
        size = store.log.end
        plain = size / read_files(place, size) / 1e6
        if kind == "cold":
            forget_pages(place)
        store = opened(place)
        taken = seconds(partial(drain, store))
        store.close()
        yield Row(f"read, {kind}: MB/s", size / taken / 1e6, plain, "file.read")
        yield Row(f"read, {kind}: messages/s", COUNT_MAX / taken)
    shutil.rmtree(place)


def recovery(folder: Path) -> Iterator[Row]:
    """Seconds to open a store after a kill with 100,000 messages since the checkpoint, by the size
    of its log.
    """
    for gib in (1, 10, 30):
        with fresh(folder) as store:
            for _ in range(gib - 1):
                put(store, 1, b"first of its file")
                close_file(store)
            put(store, 1000, bytes(128))
            store.make_checkpoint()
            put(store, TAIL, bytes(128), 1000)
            place = store.config.root
            store.abandon()
            again = Store(store.config, wall_clock_ms)
            taken = seconds(again.open)
            assert again.log.file_starts[-1] == (gib - 1) * GIB
            again.abandon()
            assert place.exists()
        yield Row(f"recovery after a kill, log of {gib} GiB: s", taken)


def close_file(store: Store) -> None:
    """Let the log go on in the next file, and leave the rest of this one a hole."""
    log = store.log
    room = GIB - log.end % GIB
    log.write(blank(room))
    assert room > BLANK_SIZE
    log.end = log.end + room - BLANK_SIZE


MEASURED: Final = (appends, syncs, dispatch, reads, recovery)


def page(rows: Sequence[Sequence[Row]], command: str) -> str:
    """A table of medians over the rounds."""
    lines = [
        "# The store by itself",
        "",
        f"- {datetime.now(UTC).date()}, `{command}`, {len(rows)} rounds, medians (least – greatest)",
        f"- {machine.describe()}",
        f"- {machine.describe_python()}; one process, no sockets",
        "- messages have a unique key, which is indexed, and go to 16 queues",
        "",
        "| figure | roquet | the machine's own | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for each in zip(*rows, strict=True):
        own, figures = median(row.own for row in each), sorted(row.figure for row in each)
        middle = median(figures)
        beside = f"{number(own)} {each[0].what} | {middle / own:.2f}" if own else "|"
        lines.append(
            f"| {each[0].name} | **{number(middle)}** ({number(figures[0])} – {number(figures[-1])}) | {beside} |"
        )
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure roquet's store beside the machine's own limits."
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "STORE.md")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds: list[list[Row]] = []
    for number_of_round in range(options.rounds):
        rounds.append([])
        for measure in MEASURED:
            for row in measure(options.folder):
                rounds[-1].append(row)
                print(f"round {number_of_round + 1}, {row.name} {number(row.figure)}", flush=True)
    options.results.write_text(page(rounds, f"python -m bench.store --rounds {options.rounds}"))


if __name__ == "__main__":
    main()
