"""What the tests of this package share."""

from __future__ import annotations

from tests.blocking import cluster, topic

__all__ = ["cluster", "topic"]
