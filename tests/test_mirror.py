"""The tests mirror the tree: a module with logic has a test module of its name in the same place."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

TESTS: Final = Path(__file__).parent
SOURCE: Final = TESTS.parent / "src" / "roquet"
BRANCHES: Final = (ast.If, ast.IfExp, ast.While, ast.Match, ast.Try)


class Elsewhere(NamedTuple):
    """Where a module without a test module of its own is tested, and why there."""

    tests: str
    reason: str


EXCEPTIONS: Final[Mapping[str, Elsewhere]] = {
    "broker/handler_table.py": Elsewhere(
        "broker/handlers/admin/test_ha.py",
        "wiring, which all tests of whole brokers use; its one branch is what a slave tells of itself",
    ),
    "broker/handlers/admin/saved.py": Elsewhere(
        "broker/handlers/admin/test_topics.py", "answers that handlers of tables share"
    ),
    "cli/store/dump.py": Elsewhere(
        "cli/store/test_command.py", "one of the commands of `roquet store`, tested together"
    ),
    "spark/deduplication.py": Elsewhere(
        "spark/_write/test_sink.py", "the reader's half of what a sink writes there"
    ),
    "spark/pipelines/archive/delta.py": Elsewhere(
        "spark/delta/test_archive_delta.py", "needs a Spark with Delta Lake, which is apart"
    ),
    "spark/pipelines/send/restore_job.py": Elsewhere(
        "spark/pipelines/send/test_resend.py", "sends an archive with what `resend` has"
    ),
    "spark/session.py": Elsewhere(
        "spark/test_java.py", "starts Spark: in this process there is one session for all tests"
    ),
}


def has_logic(source: str) -> bool:
    """Whether a function in it has a branch."""
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(isinstance(inner, BRANCHES) for node in functions for inner in ast.walk(node))


def mirrored(module: str) -> Path:
    """Its test module. A package's own module is tested beside its folder."""
    path = Path(module)
    place = path.parent if path.stem == "__init__" else path
    return TESTS / place.parent / f"test_{place.stem.removeprefix('_')}.py"


MODULES: Final = [
    path.relative_to(SOURCE).as_posix()
    for path in sorted(SOURCE.rglob("*.py"))
    if has_logic(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("module", [name for name in MODULES if name not in EXCEPTIONS])
def test_a_module_with_logic_has_a_test_module(module: str) -> None:
    assert mirrored(module).is_file()


@pytest.mark.parametrize(("module", "elsewhere"), EXCEPTIONS.items())
def test_an_exception_is_needed_and_names_tests_that_exist(
    module: str, elsewhere: Elsewhere
) -> None:
    assert module in MODULES
    assert not mirrored(module).exists()
    assert (TESTS / elsewhere.tests).is_file()
    assert elsewhere.reason


def test_logic_is_a_branch_in_a_function() -> None:
    assert has_logic("class C:\n    async def f(self):\n        return 1 if self else 2\n")
    assert not has_logic("if True:\n    A = 1\n\ndef f():\n    return [x for x in y]\n")
