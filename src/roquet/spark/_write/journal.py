"""The journal of a task: finds rows that earlier attempts stored, or whose answer was lost.

Before its first send a task writes an intent to every broker that it will send to. The intent's key
names the batch and the partition, its body has the ends of the target queues. An attempt that finds
an older intent with its key reads the queues from these ends, and does not send the rows that it
finds. docs/decisions/0016-effectively-once-sink.md says why that is enough, and what it cannot
guarantee.

Invariant: a queue is read only after a message stored later in the same commit log could be pulled.
Messages are dispatched in the order of the log, so all rows stored before that message can be
pulled.
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
from roquet.spark._arrow.slices import true_rows
from roquet.spark._write.broker import HITS_MAX, MasterRequests
from roquet.spark._write.encoding import row_number
from roquet.spark._write.rows import ROW_ID, SinkRows
from roquet.spark._write.send import SinkError

_PROPERTIES: Final = pa.schema([ARROW_SCHEMA.field("properties")])
_FOUND_SCHEMA: Final = pa.schema([ARROW_SCHEMA.field("body"), ARROW_SCHEMA.field("properties")])
_DECODED_SIZE: Final = 1024 * 1024
"""Bytes of pulled messages that are decoded at once: one pull has too few for columns to pay."""
_WANTED: Final = (
    "delivery=effectively-once needs the same rows in the same order whenever a batch runs again"
)


class TopicJournal:
    """The journal of one task in one topic.

    :param id_prefix: prefix of the task's row ids and of the key of its intents.
    """

    def __init__(
        self, masters: MasterRequests, id_prefix: str, queues: Sequence[MessageQueue]
    ) -> None:
        self._masters = masters
        self._id_prefix = id_prefix
        self._queues = queues
        self._key = f"{id_prefix}{queues[0].topic}"
        self._ends: dict[MessageQueue, int] = {}
        """Queue -> offset at or after which all rows are that were sent since `stored` answered."""
        self._stored: dict[int, int] = {}
        """Row number -> checksum of its body, of rows that earlier attempts stored.

        A row is removed when this attempt gets it from Spark.
        """

    async def open(self) -> None:
        """Write an intent to every broker, and find the rows that earlier attempts stored.

        :raises SinkError: a broker that an earlier attempt may have sent to is not in the route
            now.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        for found in await asyncio.gather(
            *(self._open_broker(queues, set(by_broker)) for queues in by_broker.values())
        ):
            self._stored |= found

    def left(self, rows: SinkRows) -> SinkRows:
        """The rows that are not stored yet.

        :raises SinkError: a stored row has another body now.
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
                            place, f"an earlier attempt stored another body for it: {_WANTED}"
                        )
                    )
                )
        return rows.take(np.delete(np.arange(len(rows)), places))

    def close(self) -> None:
        """Check that this attempt got all rows that earlier attempts stored.

        :raises SinkError: it did not.
        """
        if self._stored:
            raise SinkError(
                f"{len(self._stored)} rows that an earlier attempt stored are missing: {_WANTED}"
            )

    async def stored(self, queue: MessageQueue) -> Container[int]:
        """The rows stored in `queue` of those that this task sent to it since its last answer.

        After a crash of the broker that may be some rows of a batch only.
        """
        await self._masters.write_intent(queue, b"{}")
        end = await self._masters.end_of(queue)
        return await self._scan(queue, self._ends[queue], end)

    def went_to(self, queue: MessageQueue, end: int) -> None:
        self._ends[queue] = end

    async def _open_broker(self, queues: Sequence[MessageQueue], names: set[str]) -> dict[int, int]:
        ends = await asyncio.gather(*map(self._masters.end_of, queues))
        intent = {
            "brokers": sorted(names),
            "ends": {str(queue.queue_id): end for queue, end in zip(queues, ends, strict=True)},
        }
        body = json.dumps(intent).encode()
        offset = await self._masters.write_intent(queues[0], body, self._key)
        hits = await self._masters.find_intents(queues[0], self._key, offset)
        earlier = [_intent(hit) for hit in hits if hit.queue_offset < offset]
        self._refuse_missing({name for each in earlier for name in each["brokers"]} - names)
        ends = await asyncio.gather(*map(self._masters.end_of, queues))
        self._ends |= zip(queues, ends, strict=True)
        if not earlier:
            return {}
        starts = [0 if len(hits) >= HITS_MAX else _start(queue, earlier) for queue in queues]
        scans = (self._scan(*part) for part in zip(queues, starts, ends, strict=True))
        return {
            row: checksum
            for found in await asyncio.gather(*scans)
            for row, checksum in found.items()
        }

    def _refuse_missing(self, names: set[str]) -> None:
        if names:
            raise SinkError(
                f"{', '.join(sorted(names))} may have stored rows of this batch and is not in the "
                "topic's route: start the broker again, or write with delivery=at-least-once"
            )

    async def _scan(self, queue: MessageQueue, start: int, end: int) -> dict[int, int]:
        """The rows of this task at offsets [start, end), with the checksums of their bodies."""
        found: dict[int, int] = {}
        pulled: list[bytes] = []
        while start < end:
            answer = await self._masters.pull(queue, start)
            if answer.next_offset <= start:
                raise SinkError(f"the broker has offset {start} of {queue} but does not return it")
            start = answer.next_offset
            pulled.append(answer.body)
            if start >= end or sum(map(len, pulled)) > _DECODED_SIZE:
                found |= self._rows_in(b"".join(pulled))
                pulled.clear()
        return found

    def _rows_in(self, body: bytes) -> Iterable[tuple[int, int]]:
        """The rows of this task in pulled bytes.

        Of messages of other producers only the properties are decoded: their bodies may be damaged.
        """
        records = Records.walk(body)
        for headed in _batches(records, _PROPERTIES):
            is_ours = pc.starts_with(_row_ids(headed), self._id_prefix)
            for batch in _batches(records.where(true_rows(is_ours)), _FOUND_SCHEMA):
                for row_id, content in zip(
                    _row_ids(batch).to_pylist(), batch.column("body"), strict=True
                ):
                    yield row_number(row_id), zlib.crc32(content.as_buffer())


def _row_ids(batch: pa.RecordBatch) -> pa.Array:
    return pc.map_lookup(batch.column("properties"), ROW_ID, "first")


def _batches(records: Records, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Decode records, usually to one batch; to several if the bodies are large."""
    for each in decode(records, schema, broker_name=""):
        if isinstance(each, BadBody):
            raise SinkError(f"{each.place}, a row that an earlier attempt stored: {each.reason}")
        yield each


def _intent(stored: Record) -> dict[str, Any]:
    intent: dict[str, Any] = json.loads(stored.body)
    return intent


def _start(queue: MessageQueue, earlier: Iterable[dict[str, Any]]) -> int:
    """The queue's end in the earliest intent; 0 if an intent does not have the queue."""
    return min(int(each["ends"].get(str(queue.queue_id), 0)) for each in earlier)
