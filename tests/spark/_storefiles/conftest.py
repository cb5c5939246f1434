"""The store that most tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.store_rows import COUNT
from tests.storetool.stores import filled


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    """A store of two queues in the test's folder; where its records are."""
    return [int(at) for at in filled(tmp_path, COUNT)]
