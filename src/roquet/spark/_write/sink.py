"""The writers that Spark calls for `df.write` and `df.writeStream` to `format("rocketmq")`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from roquet.errors import OptionError
from roquet.spark._options.write import WriteOptions
from roquet.spark._worker import begin_task
from roquet.spark._write.columns import check_columns
from roquet.spark._write.send import Written
from roquet.spark._write.task import Task, write

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Spark's names of task properties. A query keeps its id when it restarts from its checkpoint."""


class RocketMQWriter(DataSourceArrowWriter):
    """One batch write. The driver creates its id, so all attempts of a task have the same id."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode overwrite: a topic cannot be overwritten, use mode('append')")
        check_columns(schema, options)
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        begin_task()
        return write(iterator, Task(self._run, 0, _context().partitionId()), self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log("", messages)

    def abort(self, _messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("write failed, rows that were sent stay in their topics")


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """The writes of a stream, batch by batch."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "output mode complete: a topic cannot be overwritten, use append or update"
            )
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        context = _context()
        run = context.getLocalProperty(_QUERY_ID)
        batch = context.getLocalProperty(_BATCH_ID)
        assert run is not None, "Spark sets the query id in tasks of streams"
        assert batch is not None, "Spark sets the batch id in tasks of streams"
        begin_task()
        task = Task(run.replace("-", ""), int(batch), context.partitionId())
        return write(iterator, task, self._options)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        _log(f" batch={batchId}", messages)

    def abort(
        self,
        _messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        log.warning("write failed, rows that were sent stay in their topics: batch=%s", batchId)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls write only in tasks"
    return context


def _log(suffix: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log the sums of all tasks; as a warning if rows were stored with less than SEND_OK."""
    tasks = [message for message in messages if isinstance(message, Written)]
    rows = sum(task.rows for task in tasks)
    found = sum(task.found for task in tasks)
    unsafe = sum(task.unsafe.total() for task in tasks)
    level = logging.WARNING if unsafe else logging.INFO
    log.log(
        level, "write finished: rows=%d already_stored=%d unsafe=%d%s", rows, found, unsafe, suffix
    )
