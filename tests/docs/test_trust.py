"""What docs/trust.md names as keeping and holding the promises is there."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT, code_in, tables

PAGE: Final = DOCS / "trust.md"
PROMISES: Final = tables(PAGE, "promise")
TRIALS: Final = tables(PAGE, "what")
FIRST_FOLDERS: Final = ("src/", "tests/", "bench/", ".ci/")


def named(cells: list[str]) -> list[str]:
    """What cells have between backticks, one after the other."""
    return [name for cell in cells for name in code_in(cell)]


PATHS: Final = sorted(
    {name for row in PROMISES + TRIALS for name in named(row) if name.startswith(FIRST_FOLDERS)}
)
TARGETS: Final = {
    name.split()[1] for row in PROMISES + TRIALS for name in named(row) if name.startswith("make ")
}


@pytest.mark.parametrize("path", PATHS)
def test_what_the_page_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_each_promise_names_source_tests_and_a_command() -> None:
    assert len(PROMISES) > 10
    for promise, source, _, tests, command in PROMISES:
        assert named([source]), promise
        assert set(named([source, tests])) <= set(PATHS), promise
        assert all(name.startswith("tests/") for name in named([tests])), promise
        assert named([tests]), promise
        assert named([command]), promise


def test_each_command_is_a_target_of_the_makefile() -> None:
    defined = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert TARGETS
    assert defined >= TARGETS
