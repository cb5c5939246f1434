"""Wall clocks that are set, by an hour or a year, for a moment or for good, while everything else
goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.simulation.simulation import Host, Simulation

HOUR_MS: Final = 3_600_000
STEPS_MS: Final = (100, 60_000, 2 * HOUR_MS, 26 * HOUR_MS, 4 * 24 * HOUR_MS, 400 * 24 * HOUR_MS)


def set_clocks(sim: Simulation, hosts: Sequence[Host], times: int, pause_s: float) -> None:
    """One of the clocks after the other, ahead or back, each after a pause; most are set right
    again soon.
    """
    chance = sim.chance("clocks")
    for _ in range(times):
        sim.run_for(chance.uniform(0, pause_s))
        host, step_ms = chance.choice(hosts), chance.choice(STEPS_MS) * chance.choice((-1, 1))
        host.clock_ahead_ms += step_ms
        sim.run_for(chance.choice((0, 0.1, 10)))
        if chance.random() < 0.7:
            host.clock_ahead_ms -= step_ms
