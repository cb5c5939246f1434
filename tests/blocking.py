"""Fixtures for blocking calls, which take real time and real threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from roquet.dev import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        settings={"transactionTimeOut": 100, "transactionCheckInterval": 200},
        delay_levels="1s 1s 1s 1s",
    ) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.originalname[:60]
    cluster.create_topic(name, 2)
    return name
