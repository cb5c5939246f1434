"""What a pipeline tells whoever shows its progress, before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class JobSize:
    """So many rows are to come; 0 where nobody can tell.

    `size` are the bytes of all their bodies, for what is sent; else the files in `folder` grow, if it can be told.
    """

    rows: int
    size: int = 0
    folder: Path | None = None


Planned: TypeAlias = Callable[[JobSize], None]


def nobody_asks(work: JobSize) -> None:
    """For those who call a pipeline and do not watch it."""
