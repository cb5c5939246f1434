"""Jobs that send messages again: restore, replay, redrive."""

from __future__ import annotations

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
