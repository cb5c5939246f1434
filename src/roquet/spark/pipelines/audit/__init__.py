"""Compares two copies of queues: masters, slaves, or store files."""

from __future__ import annotations

from roquet.spark.pipelines.audit.job import Audit, Brokers, Stored, audit
from roquet.spark.pipelines.audit.report import AuditReport, QueueAudit

__all__ = [
    "Audit",
    "AuditReport",
    "Brokers",
    "QueueAudit",
    "Stored",
    "audit",
]
