"""Clients that the tests of a module use one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache import JavaClients, require_java

pytest.register_assert_rewrite("tests.interop.scenarios", "tests.interop.store_rows")


@pytest.fixture(scope="module")
def clients() -> Iterator[JavaClients]:
    require_java()
    with JavaClients() as running:
        yield running
