"""How much of this is run: few rounds of kills, and one kind of outage, in `make test`; more in
`make network`.
"""

from __future__ import annotations

import pytest

from tests.network.cluster import Outage

ROUNDS_OF_A_SHORT_RUN = 3
OUTAGES = ((Outage.CUT, Outage.MUTE), (Outage.DEAF, Outage.DEAF), (Outage.MUTE, Outage.DEAF))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    rounds = metafunc.config.getoption("--rounds")
    if "outages" in metafunc.fixturenames:
        outages = OUTAGES[:1] if rounds <= ROUNDS_OF_A_SHORT_RUN else OUTAGES
        metafunc.parametrize(
            "outages", outages, ids=["-".join(each.value for each in every) for every in outages]
        )
    if "kill_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--kill-seed")
        metafunc.parametrize("kill_seed", [seed], ids=[f"kill-seed {seed}"])


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds"))
