"""Whether Spark asks a reader of ours which conditions of a query it can see to itself."""

from __future__ import annotations

import sys
from typing import Final

_FILTER_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def filters_are_pushed() -> bool:
    """Whether the reader that is being made must take filters.

    One that does is an error where `spark.sql.python.filterPushdown.enabled` is off, as it is unless somebody turns it
    on, and a data source is not told. But filters come from a worker of Spark's own for them.
    """
    return _FILTER_WORKER in sys.modules
