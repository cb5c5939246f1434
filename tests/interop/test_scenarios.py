"""What Apache's Java clients see, of either release, on our broker; with `--baseline`, on Apache's
own 4.9.7.

All scenarios that were asked for run beside each other, for most of their time is waiting; each
test then tells of one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

import pytest

from tests.interop.apache import Version, require_java
from tests.interop.ground import QUICK, STRICT, STRICT_NAMES, Ground
from tests.interop.scenarios.registry import SCENARIOS, Scenario
from tests.interop.scene import Scene
from tests.interop.stage import Stage

for module in sorted((Path(__file__).parent / "scenarios").glob("*.py")):
    importlib.import_module(f"tests.interop.scenarios.{module.stem}")

pytestmark = pytest.mark.interop

Case = tuple[Scenario, Version]
CASES: list[Case] = [(scenario, version) for scenario in SCENARIOS for version in scenario.versions]
BESIDE = 8 * (os.cpu_count() or 1)
"""So many run at a time."""


class Theatre:
    """The grounds and stages, each started when it is first needed, and the runs of all
    scenarios.
    """

    def __init__(self, cases: list[Case], *, is_apache: bool) -> None:
        self._is_apache = is_apache
        self._running = ExitStack()
        self._lock = Lock()
        self._grounds: dict[str, Ground] = {}
        self._stages: dict[Version, Stage] = {}
        self._threads = ThreadPoolExecutor(BESIDE)
        longest_first = sorted(cases, key=lambda case: -case[0].seconds)
        for scenario, version in longest_first:
            self._ground(scenario.ground)
            self._stage(version)
        self._runs: dict[tuple[str, Version], Future[None]] = {
            (scenario.name, version): self._threads.submit(self._play, scenario, version)
            for scenario, version in longest_first
        }

    def outcome(self, scenario: Scenario, version: Version) -> Future[None]:
        return self._runs[scenario.name, version]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._running.close()

    def _play(self, scenario: Scenario, version: Version) -> None:
        with Scene(self._ground(scenario.ground), self._stage(version), scenario.name) as scene:
            scenario.play(scene)

    def _ground(self, name: str) -> Ground:
        with self._lock:
            if name not in self._grounds:
                settings = {
                    "quick": (QUICK, None),
                    "alone": (QUICK, None),
                    "strict": ({**QUICK, **STRICT}, STRICT_NAMES),
                }
                broker, names = settings[name]
                ground = Ground(is_apache=self._is_apache, broker=broker, names=names)
                self._grounds[name] = self._running.enter_context(ground)
            return self._grounds[name]

    def _stage(self, version: Version) -> Stage:
        with self._lock:
            if version not in self._stages:
                self._stages[version] = self._running.enter_context(Stage(version))
            return self._stages[version]


@pytest.fixture(scope="module")
def theatre(request: pytest.FixtureRequest) -> Iterator[Theatre]:
    require_java()
    is_apache = request.config.getoption("--baseline")
    wanted = {
        item.callspec.id
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module == request.module
    }
    cases = [
        case
        for case in CASES
        if _id(case) in wanted and not (is_apache and case[1] in case[0].beyond)
    ]
    theatre = Theatre(cases, is_apache=is_apache)
    yield theatre
    theatre.close()


def _id(case: Case) -> str:
    scenario, version = case
    return f"{scenario.name}-{version}"


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_a_client_sees_that(theatre: Theatre, request: pytest.FixtureRequest, case: Case) -> None:
    scenario, version = case
    if request.config.getoption("--baseline") and version in scenario.beyond:
        pytest.skip(scenario.beyond[version])
    theatre.outcome(scenario, version).result()
