"""What kind of Python process of Spark's this is, and what follows from it."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final

from roquet.common.memory import keep_freed_memory

_FILTER_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_TASK_WORKER: Final = "pyspark.worker"


def filters_are_pushed() -> bool:
    """Whether the reader that is being made must take filters.

    One that does is an error where `spark.sql.python.filterPushdown.enabled` is off, as it is unless somebody turns it
    on, and a data source is not told. But filters come from a worker of Spark's own for them.
    """
    return _FILTER_WORKER in sys.modules


def begin_task() -> None:
    """Set up the process that works at tasks, once: they come one after the other in it.

    What is imported by now is left out when garbage is collected. Spark collects after every task, which took some
    25 ms of CPU for what Spark, Arrow, numpy and roquet hold alone.
    """
    if _TASK_WORKER in sys.modules:
        _set_up()


@cache
def _set_up() -> None:
    gc.freeze()
    keep_freed_memory()
