"""The page that leads to modules names modules that there are, and what they define."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT, code_in, rows

SOURCE: Final = ROOT / "src" / "roquet"
TABLE: Final = rows(DOCS / "where.md", "question")


def test_there_is_something_to_find() -> None:
    assert len(TABLE) >= 12


@pytest.mark.parametrize(("question", "module", "name", "remark"), TABLE)
def test_a_module_defines_what_the_page_says(
    question: str, module: str, name: str, remark: str
) -> None:
    (path,) = code_in(module)
    tree = ast.parse((SOURCE / path).read_bytes())
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert code_in(name)[0] in defined, question
    assert [each for each in code_in(remark) if "/" in each and not (SOURCE / each).exists()] == []
