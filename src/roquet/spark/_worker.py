"""Detects which of Spark's Python workers this process is, and sets up the one that runs tasks."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final

from roquet.common.memory import keep_freed_memory

_FILTER_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_TASK_WORKER: Final = "pyspark.worker"


def filters_are_pushed() -> bool:
    """Whether the reader that is being created must implement `pushFilters`.

    Spark rejects a reader that does if `spark.sql.python.filterPushdown.enabled` is off, its
    default, and does not pass the setting to a data source. But Spark pushes filters in a worker
    module of their own, so the setting is on if that module is loaded.
    """
    return _FILTER_WORKER in sys.modules


def begin_task() -> None:
    """Set up a process that runs tasks, at its first task. One process runs many tasks in turn.

    Objects that exist now are excluded from garbage collection. Spark collects garbage after every
    task, which took some 25 ms of CPU for the objects of Spark, Arrow, numpy and roquet alone.
    """
    if _TASK_WORKER in sys.modules:
        _set_up()


@cache
def _set_up() -> None:
    gc.freeze()
    keep_freed_memory()
