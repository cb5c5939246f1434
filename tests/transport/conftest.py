"""A server with handlers of many kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.transport.both import Both


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    both = Both()
    await both.start()
    yield both
    await both.stop()
