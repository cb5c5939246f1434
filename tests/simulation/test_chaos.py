"""One trouble after the other, each of any kind, the next as soon as the cluster has recovered from the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.simulation.cluster import CONSUMER, NAME_SERVER, Cluster
from tests.simulation.disk import DriveSpeed
from tests.simulation.network import LinkQuality
