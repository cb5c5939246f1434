"""The lag of consumer groups over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.common.lazy import attributes_of

if TYPE_CHECKING:
    from roquet.spark.pipelines.lag.job import Lag, Sampled, lag
    from roquet.spark.pipelines.lag.report import Series, lag_page, series_of

__all__ = [
    "Lag",
    "Sampled",
    "Series",
    "lag",
    "lag_page",
    "series_of",
]

if not TYPE_CHECKING:  # a type checker would take any name at all for one of these
    __getattr__ = attributes_of(
        __name__,
        {
            "Lag": "roquet.spark.pipelines.lag.job",
            "Sampled": "roquet.spark.pipelines.lag.job",
            "Series": "roquet.spark.pipelines.lag.report",
            "lag": "roquet.spark.pipelines.lag.job",
            "lag_page": "roquet.spark.pipelines.lag.report",
            "series_of": "roquet.spark.pipelines.lag.report",
        },
    )
