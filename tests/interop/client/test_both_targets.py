"""Every scenario of the suite runs at Apache's broker and at ours."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.interop.client.conftest import TARGETS

HERE = Path(__file__).parent
COUNT_MIN = 120
"""That the suite has more than so many scenarios is said in tests/interop/README.md."""
OF_A_TARGET = {"target", "strict"}


def scenarios() -> Iterator[ast.AsyncFunctionDef | ast.FunctionDef]:
    for path in sorted({*HERE.glob("test_*.py")} - {Path(__file__)}):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith(
                "test_"
            ):
                yield node


def test_there_are_two_targets() -> None:
    assert TARGETS == ("apache", "ours")


def test_each_scenario_is_given_a_target() -> None:
    for scenario in scenarios():
        assert OF_A_TARGET & {argument.arg for argument in scenario.args.args}, scenario.name


def test_each_scenario_has_a_name_of_its_own_and_there_are_many() -> None:
    names = Counter(scenario.name for scenario in scenarios())
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) >= COUNT_MIN
