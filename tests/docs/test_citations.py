"""What code says about where a rule is written leads to a place in the project, and what pages say
about modules leads to a module.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import EVERY_PAGE, ROOT, anchors, name_of

PYTHON: Final = sorted(
    path
    for folder in ("src", "tests", "bench", "demo", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
_CITED: Final = re.compile(r"\bdocs/[\w./-]+\.md(?:#([\w-]+))?")
_DECISION: Final = re.compile(r"\bdecisions? (\d{4})\b")
_MODULE: Final = re.compile(r"`([\w-]+/[\w/-]+\.py)`")
_ELSEWHERE: Final = re.compile(r"(?<![\w/-])[a-z-]+\.md \d|(?<!\()\b[Tt]raps? \d")
"""A page that is named without its folder, or a number without its page: a reader cannot tell
which.
"""


def citations(path: Path) -> list[tuple[str, str]]:
    """Page and anchor of each; a page that code cites begins with `docs/`."""
    text = path.read_text(encoding="utf-8")
    return [(match[0].partition("#")[0], match[1] or "") for match in _CITED.finditer(text)]


def resolves(page: str, anchor: str) -> bool:
    return (ROOT / page).is_file() and (not anchor or anchor in anchors(ROOT / page))


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_code_cites_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    numbers = {name.name[:4] for name in (ROOT / "docs" / "decisions").iterdir()}

    assert [cited for cited in citations(path) if not resolves(*cited)] == []
    assert set(_DECISION.findall(text)) <= numbers
    assert _ELSEWHERE.findall(text) == []


@pytest.mark.parametrize("page", EVERY_PAGE, ids=name_of)
def test_the_modules_that_a_page_names_are_there(page: Path) -> None:
    named = _MODULE.findall(page.read_text(encoding="utf-8"))
    folders = (ROOT, ROOT / "src" / "roquet", page.parent)

    assert [
        module for module in named if not any((folder / module).is_file() for folder in folders)
    ] == []
