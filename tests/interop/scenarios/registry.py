"""The list of scenarios: functions that say what clients see, of either release, on either kind of
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tests.interop.apache import Version
from tests.interop.scene import Scene

Play = Callable[[Scene], None]


@dataclass(frozen=True)
class Scenario:
    """One claim about what a client sees.

    :param seconds: roughly how long it waits; those that wait long begin first.
    :param beyond: what Apache's 4.9.7 broker cannot do for a release, and ours can.
    :param ground: `quick`; `strict` (see ground.py); or `alone`, for a scenario that disturbs all
        others on its broker.
    """

    play: Play
    versions: tuple[Version, ...]
    seconds: float
    beyond: Mapping[Version, str]
    ground: str

    @property
    def name(self) -> str:
        return self.play.__name__


SCENARIOS: list[Scenario] = []


def scenario(
    *,
    versions: Sequence[Version] = tuple(Version),
    seconds: float = 5,
    beyond: Mapping[Version, str] = MappingProxyType({}),
    ground: str = "quick",
) -> Callable[[Play], Play]:
    def enter(play: Play) -> Play:
        SCENARIOS.append(Scenario(play, tuple(versions), seconds, beyond, ground))
        return play

    return enter
