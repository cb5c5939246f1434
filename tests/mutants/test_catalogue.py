"""The list of mutants fits the source: each can be applied. That tests kill them, `make mutants`
shows.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
FEWEST = 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_can_be_applied_and_names_tests_that_exist(mutant: Mutant) -> None:
    for change in mutant.changes:
        source = (ROOT / change.path).read_text()
        assert change.applied(source) != source
    for test in (*mutant.tests, *mutant.simulation):
        if not test.startswith("-"):
            assert (ROOT / test.partition("::")[0]).exists(), test


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.once], ids=lambda mutant: mutant.once
)
def test_a_fault_that_the_program_once_had_is_one_for_the_simulation(mutant: Mutant) -> None:
    assert mutant.simulation
    assert all(test.startswith(("tests/simulation/", "-")) for test in mutant.simulation)


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert len(MUTANTS) >= FEWEST
    assert max(names.values()) == 1, names.most_common(1)
