"""A store that tests damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storetool.stores import COUNT, filled


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    """Where the records of a store with `COUNT` messages are."""
    return filled(tmp_path, COUNT)
