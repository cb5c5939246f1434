"""Who may still open something when few file descriptors are left."""

from __future__ import annotations

import os
import sys

import pytest

from roquet.common import descriptors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")


def test_each_kind_stops_at_its_share() -> None:
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(16)]
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    limit = lowest_free * 16 // descriptors.FOR_NEW_QUEUES
    assert not descriptors.are_left(descriptors.FOR_NEW_QUEUES, limit)
    assert descriptors.are_left(16, limit)
    assert descriptors.are_left(descriptors.FOR_NEW_QUEUES, limit + 2)
    assert descriptors.are_left(descriptors.FOR_NEW_QUEUES, 0), "there may be no limit"
    for each in held:
        os.close(each)
