"""What a task's earlier attempts stored: asked of the brokers, before the first send and after a lost answer.

Before its first send a task writes an intent to every broker it will send to: its key names the batch and the
partition, its body how far the target queues were. An attempt that finds an older intent of its key reads the queues
from there and leaves out the rows it finds. Why that is enough, and what it cannot promise:
docs/decisions/0016-effectively-once.md.

Keeps: a queue is read only after a message that was stored later in the same log could be read; messages become
       readable in the order of the log, so whatever was stored before is there.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.records import Records
from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._write.broker import HITS_MAX, Broker, Brokers
from roquet.spark._write.encoding import row_number
from roquet.spark._write.rows import ROW_ID, Rows, bits_in
from roquet.spark._write.send import SinkError

_PROPERTIES: Final = pa.schema([ARROW_SCHEMA.field("properties")])
_FOUND_SCHEMA: Final = pa.schema([ARROW_SCHEMA.field("body"), ARROW_SCHEMA.field("properties")])
_DECODED_SIZE: Final = 1024 * 1024
"""What was pulled is decoded in parts of about this size: a pull alone brings too little for columns to pay."""
_WANTED: Final = (
    "delivery=effectively-once needs the same rows in the same order whenever a batch runs again"
)


class TopicJournal:
    """The rows of one task in one topic.

    :param id_front: what the ids of the task's rows begin with, and its intents' key.
    """

    def __init__(self, brokers: Brokers, id_front: str, queues: Sequence[MessageQueue]) -> None:
        self._brokers = brokers
        self._id_front = id_front
        self._queues = queues
        self._key = f"{id_front}{queues[0].topic}"
        self._ends: dict[MessageQueue, int] = {}
        """What this task sent since it last looked lies behind these."""
        self._stored: dict[int, int] = {}
        """Row -> checksum of its body: what earlier attempts stored, and this one has not met yet."""

    async def open(self) -> None:
        """Leave an intent at every broker, and find what earlier attempts stored.

        :raises SinkError: a broker that an earlier attempt may have sent to cannot be asked.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        for found in await asyncio.gather(
            *(self._open_broker(queues, set(by_broker)) for queues in by_broker.values())
        ):
            self._stored |= found

    def left(self, rows: Rows) -> Rows:
        """The rows that are not stored yet.

        :raises SinkError: one that is stored is another now.
        """
        if not self._stored:
            return rows
        places = np.flatnonzero(
            np.isin(rows.numbers, np.fromiter(self._stored, np.int64, len(self._stored)))
        )
        for place in places.tolist():
            if self._stored.pop(int(rows.numbers[place])) != zlib.crc32(
                rows.body[place].as_buffer()
            ):
                raise SinkError(
                    str(
                        rows.error(
                            place, f"it is not what it was when it was sent before: {_WANTED}"
                        )
                    )
                )
        return rows.take(np.delete(np.arange(len(rows)), places))

    def close(self) -> None:
        """:raises SinkError: rows are stored that this attempt never had."""
        if self._stored:
            raise SinkError(
                f"{len(self._stored)} rows were sent before and are not there any more: {_WANTED}"
            )

    async def stored(self, queue: MessageQueue) -> Container[int]:
        """The rows of this task in that queue, of those sent since the last answer; a crash may have cut a batch."""
        broker = self._brokers.at(queue)
        await broker.write(b"{}")
        end = await broker.end_of(queue)
        return await self._scan(broker, queue, self._ends[queue], end)

    def went_to(self, queue: MessageQueue, end: int) -> None:
        self._ends[queue] = end

    async def _open_broker(self, queues: Sequence[MessageQueue], names: set[str]) -> dict[int, int]:
        broker = self._brokers.at(queues[0])
        ends = await asyncio.gather(*map(broker.end_of, queues))
        intent = {
            "brokers": sorted(names),
            "ends": {str(queue.queue_id): end for queue, end in zip(queues, ends, strict=True)},
        }
        offset = await broker.write(json.dumps(intent).encode(), self._key)
        hits = await broker.find(self._key, offset)
        earlier = [_intent(hit) for hit in hits if hit.queue_offset < offset]
        self._refuse_missing({name for each in earlier for name in each["brokers"]} - names)
        ends = await asyncio.gather(*map(broker.end_of, queues))
        self._ends |= zip(queues, ends, strict=True)
        if not earlier:
            return {}
        starts = [0 if len(hits) >= HITS_MAX else _start(queue, earlier) for queue in queues]
        scans = (self._scan(broker, *part) for part in zip(queues, starts, ends, strict=True))
        return {
            row: checksum
            for found in await asyncio.gather(*scans)
            for row, checksum in found.items()
        }

    def _refuse_missing(self, names: set[str]) -> None:
        if names:
            raise SinkError(
                f"{', '.join(sorted(names))} may have stored rows of this batch and cannot be asked: start the broker "
                "again, or write with delivery=at-least-once"
            )

    async def _scan(
        self, broker: Broker, queue: MessageQueue, start: int, end: int
    ) -> dict[int, int]:
        """The rows of this task in a part of a queue, each with the checksum of its body."""
        found: dict[int, int] = {}
        pulled: list[bytes] = []
        while start < end:
            answer = await broker.pull(queue, start)
            if answer.next_offset <= start:
                raise SinkError(f"{queue} has offset {start} but does not give it")
            start = answer.next_offset
            pulled.append(answer.body)
            if start >= end or sum(map(len, pulled)) > _DECODED_SIZE:
                found |= self._rows_in(b"".join(pulled))
                pulled.clear()
        return found

    def _rows_in(self, body: bytes) -> Iterable[tuple[int, int]]:
        """What others send to the queue is looked at no further than its properties: its bodies may be anything."""
        records = Records.walk(body)
        for headed in _batches(records, _PROPERTIES):
            is_ours = pc.fill_null(pc.starts_with(_row_ids(headed), self._id_front), False)
            for batch in _batches(records.where(bits_in(is_ours)), _FOUND_SCHEMA):
                for row_id, content in zip(
                    _row_ids(batch).to_pylist(), batch.column("body"), strict=True
                ):
                    yield row_number(row_id), zlib.crc32(content.as_buffer())


def _row_ids(batch: pa.RecordBatch) -> pa.Array:
    return pc.map_lookup(batch.column("properties"), ROW_ID, "first")


def _batches(records: Records, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One, unless bodies become large."""
    for each in decode(records, schema, broker_name=""):
        if isinstance(each, BadBody):
            raise SinkError(f"{each.place}, a row that was sent before: {each.reason}")
        yield each


def _intent(stored: Record) -> dict[str, Any]:
    intent: dict[str, Any] = json.loads(stored.body)
    return intent


def _start(queue: MessageQueue, earlier: Iterable[dict[str, Any]]) -> int:
    """Where the first attempt found the queue's end; a queue it did not know is read from its beginning."""
    return min(int(each["ends"].get(str(queue.queue_id), 0)) for each in earlier)
