"""`df.write` and `df.writeStream` to `format("rocketmq")`: what Spark calls, answered by the modules beside this."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from roquet.spark._options.values import OptionError
from roquet.spark._options.write import WriteOptions
from roquet.spark._runtime.worker import begin_task
from roquet.spark._write.columns import check_columns
from roquet.spark._write.task import Task, write

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark calls these in its tasks: the query's id stays over restarts from one checkpoint."""


@dataclass
class Written(WriterCommitMessage):
    """What a task did.

    `found` rows were stored by an attempt before it, `unsafe` ones are stored less safely than the broker is set to.
    """

    partition: int
    rows: int
    requests: int
    retries: int
    found: int
    unsafe: dict[str, int]


class RocketMQWriter(DataSourceArrowWriter):
    """One batch write. Its id is made here, in the driver, so all attempts of a task have the same."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode overwrite: a topic cannot be overwritten, use mode('append')")
        check_columns(schema, options)
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        context = _context()
        return _written(iterator, Task(self._run, 0, context.partitionId()), self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log("write", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("the write failed; rows that were sent stay in their topics")


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """A stream's writes, a batch at a time."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "output mode complete: a topic cannot be overwritten, use append or update"
            )
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        context = _context()
        run, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        assert run is not None, "Spark says which query a task is of"
        assert batch is not None, "and which batch"
        return _written(
            iterator, Task(run.replace("-", ""), int(batch), context.partitionId()), self._options
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log(f"batch {batchId}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log.warning("batch %s failed; rows that were sent stay in their topics", batchId)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return context


def _written(batches: Iterator[RecordBatch], task: Task, options: WriteOptions) -> Written:
    begin_task()
    counts = write(batches, task, options)
    return Written(
        task.partition,
        counts.rows,
        counts.requests,
        counts.retries,
        counts.found,
        dict(counts.unsafe),
    )


def _log(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    tasks = [message for message in messages if isinstance(message, Written)]
    rows, found = sum(task.rows for task in tasks), sum(task.found for task in tasks)
    unsafe = sum(sum(task.unsafe.values()) for task in tasks)
    level = logging.WARNING if unsafe else logging.INFO
    log.log(
        level,
        "%s: %s rows sent, %s found stored, %s of them not as safe as wanted",
        what,
        rows,
        found,
        unsafe,
    )
