"""What the tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from roquet import sync
from roquet.dev import Cluster
from tests.blocking import cluster, topic

__all__ = ["cluster", "topic"]


@pytest.fixture
def mq(cluster: Cluster) -> Iterator[sync.Client]:
    with sync.connect(cluster.name_server) as mq:
        yield mq
