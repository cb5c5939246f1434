"""Who may still open something when few file descriptors are left."""

from __future__ import annotations

import os
import sys

import pytest

from roquet import descriptors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")


def test_each_kind_stops_at_its_share() -> None:
    used = os.open(os.devnull, os.O_RDONLY)
    os.close(used)
    limit = (used + 1) * 16 // descriptors.FOR_NEW_QUEUES + 1
    assert descriptors.are_left(descriptors.FOR_NEW_QUEUES, limit)
    more = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    assert not descriptors.are_left(descriptors.FOR_NEW_QUEUES, limit)
    assert descriptors.are_left(16, limit)
    assert descriptors.are_left(descriptors.FOR_NEW_QUEUES, 0), "there may be no limit"
    for each in more:
        os.close(each)
