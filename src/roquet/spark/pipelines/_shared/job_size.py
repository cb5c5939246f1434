"""The size of a job, which a pipeline reports before it begins, for a progress display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class JobSize:
    """How much a job will process.

    `rows`: messages; 0 if unknown. `size`: bytes of all bodies, for jobs that send; otherwise 0.
    `folder`: where the job's files grow; None if it writes no files, or the folder is unknown.
    """

    rows: int
    size: int = 0
    folder: Path | None = None


Planned: TypeAlias = Callable[[JobSize], None]
"""Called once, when a job is planned and before it begins."""


def ignore_size(size: JobSize) -> None:
    """The default callback, for callers that show no progress."""
