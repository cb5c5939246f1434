"""The site leads to every page, in the order of reading, and its reference has every public
name.
"""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

import roquet
from docs.site.contents import TOP, all_pages, home_of, listed, parts_of
from docs.site.docstrings import as_restructured_text
from roquet.admin.cluster import AdminClient
from roquet.compat.rocketmq import client, exceptions
from tests.docs.pages import DOCS, GUIDE, ROOT, blocks, name_of

REFERENCE: Final = DOCS / "api"


def documented(page: str) -> list[str]:
    """The names that a page of the reference shows, in their order."""
    return re.findall(
        r"^\.\. auto\w+:: ([\w.]+)", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE
    )


def imported_by_the_guide() -> set[str]:
    """What its programs import of `roquet.spark`."""
    found = set()
    for block in (block for page in GUIDE for block in blocks(page, "python")):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("roquet.spark"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_page_is_listed_once_by_the_readme_of_its_folder() -> None:
    reached = list(listed())

    assert [name_of(page) for page in all_pages() if page not in reached] == []
    assert len(reached) == len(set(reached))


def test_a_reader_comes_to_the_pages_in_the_order_of_use() -> None:
    guide = next(part for part in parts_of(TOP) if part.heading == "Guide")
    names = [page.stem for _, page in guide.pages]

    assert names == [
        "quickstart",
        "client",
        "sending",
        "consuming",
        "reading",
        "security",
        "client-settings",
        "sync",
        "coming-from",
        "service",
        "recipes",
        "observing",
        "testing",
        "broker",
        "replication",
        "spark",
        "pipelines",
    ]
    assert [part.heading for part in parts_of(TOP)][:5] == [
        "",
        "Guide",
        "Operations",
        "API reference",
        "Internals",
    ]


def test_a_page_belongs_to_the_nearest_readme() -> None:
    assert home_of(DOCS / "storage" / "append.md") == DOCS / "storage" / "README.md"
    assert home_of(DOCS / "storage" / "README.md") == TOP
    assert home_of(DOCS / "guide" / "client.md") == TOP
    assert home_of(ROOT / "CONTRIBUTING.md") == TOP


def test_the_reference_has_every_public_name_once() -> None:
    assert sorted(documented("roquet.rst")) == sorted(
        f"roquet.{name}"
        for name in roquet.__all__
        if name not in ("allocation", "dev", "errors", "sync")
    )
    assert sorted(documented("sync.rst")) == sorted(
        f"roquet.sync.{name}" for name in roquet.sync.__all__
    )
    assert sorted(documented("compat.rst")) == sorted(
        f"{module.__name__}.{name}"
        for module in (client, exceptions)
        for name in module.__all__
        if name != "RecvMessage"
    )
    assert documented("dev.rst") == ["roquet.dev.Cluster"]
    assert documented("admin.rst")[0] == f"{AdminClient.__module__}.{AdminClient.__name__}"
    assert sorted(documented("allocation.rst")) == sorted(
        f"roquet.allocation.{name}" for name in roquet.allocation.__all__
    )


def test_the_reference_has_what_the_guide_imports_for_spark() -> None:
    assert imported_by_the_guide() <= set(documented("spark.rst"))


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        (
            ["An example:", "", "    f()", "", "The end."],
            ["", ".. code-block:: python", "", "    f()", "", "The end."],
        ),
        ([":param x: a sum, see", "", "    below"], ["", "    below"]),
        (["- one", "", "  more of it"], ["", "  more of it"]),
    ],
)
def test_an_indented_paragraph_is_code_outside_of_lists_and_fields(
    docstring: list[str], shown: list[str]
) -> None:
    assert as_restructured_text(docstring) == [docstring[0], *shown]


def test_a_page_that_a_docstring_cites_becomes_a_link() -> None:
    assert as_restructured_text(["see docs/pitfalls.md#trap-59 and docs/guide/spark.md"]) == [
        "see :ref:`docs/pitfalls.md#trap-59 <trap-59>` and :doc:`docs/guide/spark.md </docs/guide/spark>`"
    ]
