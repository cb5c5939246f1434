"""Compares two copies of queues: masters, slaves, or store files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.common.lazy import attributes_of

if TYPE_CHECKING:
    from roquet.spark.pipelines.audit.job import Audit, Live, Stored, audit
    from roquet.spark.pipelines.audit.report import AuditReport, QueueAudit

__all__ = [
    "Audit",
    "AuditReport",
    "Live",
    "QueueAudit",
    "Stored",
    "audit",
]

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any attribute
    __getattr__ = attributes_of(
        __name__,
        {
            "Audit": "roquet.spark.pipelines.audit.job",
            "AuditReport": "roquet.spark.pipelines.audit.report",
            "Live": "roquet.spark.pipelines.audit.job",
            "QueueAudit": "roquet.spark.pipelines.audit.report",
            "Stored": "roquet.spark.pipelines.audit.job",
            "audit": "roquet.spark.pipelines.audit.job",
        },
    )
