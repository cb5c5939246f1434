"""Jobs that send messages again: restore, replay, redrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.common.lazy import attributes_of

if TYPE_CHECKING:
    from roquet.spark.pipelines._shared.message_filter import MessageFilter
    from roquet.spark.pipelines.send.redrive_job import Redrive, plan, redrive
    from roquet.spark.pipelines.send.restore_job import Restore, restore

__all__ = [
    "MessageFilter",
    "Redrive",
    "Restore",
    "plan",
    "redrive",
    "restore",
]

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any attribute
    __getattr__ = attributes_of(
        __name__,
        {
            "MessageFilter": "roquet.spark.pipelines._shared.message_filter",
            "Redrive": "roquet.spark.pipelines.send.redrive_job",
            "Restore": "roquet.spark.pipelines.send.restore_job",
            "plan": "roquet.spark.pipelines.send.redrive_job",
            "redrive": "roquet.spark.pipelines.send.redrive_job",
            "restore": "roquet.spark.pipelines.send.restore_job",
        },
    )
