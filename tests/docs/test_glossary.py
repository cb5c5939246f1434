"""The glossary explains classes that there are."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.docs.pages import code_in, rows

ROOT: Final = Path(__file__).parents[2]


def test_every_name_in_the_code_is_a_class() -> None:
    trees = [ast.parse(path.read_bytes()) for path in (ROOT / "src").rglob("*.py")]
    classes = {
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }
    explained = {
        name for names, _ in rows(ROOT / "docs" / "glossary.md", "name") for name in code_in(names)
    }

    assert explained
    assert explained <= classes
