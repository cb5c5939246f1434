"""Applications send and consume while servers, networks, clocks and applications fail: every
promise of the client holds.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.market import market

ROUNDS: Final = 4


@pytest.mark.also_seeds(25)  # a producer is closed while its sends are tried again
@pytest.mark.shares_histories(7, 30)
def test_all_that_is_acknowledged_is_handled_whatever_fails(seed: int) -> None:
    with market(seed) as place:
        for _ in range(ROUNDS):
            place.send(15)
            place.run_for_up_to(5)
            for _ in range(place.chance.randint(1, 3)):
                place.trouble()
                place.run_for_up_to(20)
                place.books.check_operations()
            if place.chance.random() < 0.5:
                place.heal()
        place.settle()
        place.close()
