"""Runs one task of a write: takes batches of rows from Spark and sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.client._net.session import Session
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client._send.unique_key import UniqueKeys
from roquet.client.config import ClientConfig
from roquet.errors import RoquetError
from roquet.spark._arrow.slices import Ints, indices, numbers_in
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._write.broker import MasterRequests
from roquet.spark._write.encoding import encode_pieces
from roquet.spark._write.journal import TopicJournal
from roquet.spark._write.rows import SinkRows, sink_rows, targets
from roquet.spark._write.send import PIECES_MAX, PieceSender, Written, patiently

ROWS_MAX: Final = 10_000
"""Rows encoded at once: as many as Spark's batches have by default."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""Approximate bytes of rows encoded at once. They are in memory twice meanwhile."""


@dataclass(frozen=True)
class Task:
    """The identity of a task, which all its attempts share.

    `run` is the id of the stream or of the batch write.
    """

    run: str
    batch: int
    partition: int

    @property
    def id_prefix(self) -> str:
        """The prefix of the ids of its rows."""
        return f"{self.run}:{self.batch}:{self.partition}:"


def write(batches: Iterator[pa.RecordBatch], task: Task, options: WriteOptions) -> Written:
    """Send all rows, and return when they are stored.

    :raises RowError: a row is no valid message; other rows may be stored.
    :raises RoquetError: brokers did not accept the rows; some rows may be stored.
    """
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as reading:
        try:
            return runner.run(_write(batches, task, options, reading))
        except RoquetError as error:
            error.add_note(f"while writing partition {task.partition}, batch {task.batch}")
            raise


async def _write(
    batches: Iterator[pa.RecordBatch],
    task: Task,
    options: WriteOptions,
    reading: ThreadPoolExecutor,
) -> Written:
    async with Session(ClientConfig(options.name_server, **options.access)) as session:
        session.membership.join_as_producer(options.group)
        writing = _Writing(session, task, options)
        try:
            async with asyncio.TaskGroup() as sends:
                await writing.send_all(batches, reading, sends)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        writing.close()
        return writing.written


class _Writing:
    """Encodes and sends the rows of a task.

    Invariant: the next rows are taken from Spark only when all pieces of the previous rows are
    stored or being sent.
    """

    def __init__(self, session: Session, task: Task, options: WriteOptions) -> None:
        self.written = Written()
        self._session = session
        self._task = task
        self._options = options
        self._routes = TopicRoutes(session)
        self._unique_keys = UniqueKeys.of_client(session.client_id, session.runtime)
        self._senders: dict[str, PieceSender] = {}
        self._journals: dict[str, TopicJournal] = {}
        """Per topic; empty unless delivery=effectively-once."""
        self._room = asyncio.Semaphore(PIECES_MAX)
        """Room for pieces that are being sent."""

    async def send_all(
        self,
        batches: Iterator[pa.RecordBatch],
        reading: ThreadPoolExecutor,
        sends: asyncio.TaskGroup,
    ) -> None:
        """Send all batches. A thread waits for Spark's rows, so the loop can receive answers."""
        first = 0
        loop = asyncio.get_running_loop()
        while (batch := await loop.run_in_executor(reading, next, batches, None)) is not None:
            for part in limited_slices(batch):
                for topic, rows in sink_rows(part, self._task.partition, first).by_topic(
                    self._options.topic
                ):
                    await self._send(topic, rows, sends)
                first += part.num_rows

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()

    async def _send(self, topic: str, rows: SinkRows, sends: asyncio.TaskGroup) -> None:
        if topic not in self._senders:
            self._senders[topic] = await self._open(topic)
        sender = self._senders[topic]
        id_prefix = None
        if journal := self._journals.get(topic):
            count = len(rows)
            rows = journal.left(rows)
            self.written.found += count - len(rows)
            id_prefix = self._task.id_prefix
        where = targets(rows, sender.queues)
        for piece in encode_pieces(
            rows, where, topic, self._options, self._unique_keys.run, id_prefix
        ):
            await self._room.acquire()
            sends.create_task(sender.send(piece)).add_done_callback(lambda _: self._room.release())

    async def _open(self, topic: str) -> PieceSender:
        """Choose the topic's queues, which stay the same for the whole task."""
        ask = partial(self._routes.queues, topic, self._options.timeout_ms)
        queues = await patiently(ask, self._options.retries)
        if self._options.delivery is DeliveryGuarantee.EFFECTIVELY_ONCE:
            masters = MasterRequests(self._session, self._routes, self._unique_keys, self._options)
            journal = self._journals[topic] = TopicJournal(masters, self._task.id_prefix, queues)
            await journal.open()
        return PieceSender(
            self._session,
            self._routes,
            queues,
            self._options,
            self.written,
            self._journals.get(topic),
        )


def limited_slices(batch: pa.RecordBatch, bytes_max: int = BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """Split a batch into parts of at most `ROWS_MAX` rows and `bytes_max` bytes (or one row)."""
    count = batch.num_rows
    if count <= ROWS_MAX and batch.nbytes <= bytes_max:
        yield batch
        return
    sizes: Ints = numbers_in(
        pc.fill_null(pc.binary_length(batch.column("body")), 0).cast(pa.int64()), np.int64
    )
    # The average is good enough for the columns other than body.
    others = max(0, batch.nbytes - int(sizes.sum())) // count
    ends = np.cumsum(sizes + others)
    start = 0
    while start < count:
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + bytes_max, "right"))
        end = min(count, start + ROWS_MAX, max(fitting, start + 1))
        yield batch.take(indices(np.arange(start, end)))
        start = end
