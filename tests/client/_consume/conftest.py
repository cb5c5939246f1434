"""What the tests of this package share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roquet.client.consumer import Consumer
from tests.client.cluster import FakeCluster
from tests.client.consumers import consumer


@pytest.fixture(params=["concurrent", "ordered", "broadcast"])
def make(
    request: pytest.FixtureRequest, cluster: FakeCluster, tmp_path: Path
) -> Callable[..., Consumer]:
    """Makes a consumer of each kind."""
    options: dict[str, dict[str, Any]] = {
        "concurrent": {},
        "ordered": {"ordered": True},
        "broadcast": {"broadcast": True, "offsets_folder": tmp_path},
    }
    return lambda **more: consumer(cluster, **{**options[request.param], **more})
