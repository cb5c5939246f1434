"""PURE but for the current folder: where a job reads and writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def is_url(folder: str | Path) -> bool:
    return _URL.match(str(folder)) is not None


def as_spark_sees(folder: str | Path) -> str:
    """A folder's absolute path, or its URL.

    Spark would begin a relative path in the folder in which its JVM was started.
    """
    return str(folder) if is_url(folder) else str(Path(folder).absolute())
