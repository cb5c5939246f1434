"""The Python of the guide and of the examples passes `mypy --strict`, as it is for whoever copies it.

The blocks of a page become a module in which each line has the number that it has in the page. A
block that defines a function again which the page defined before begins a program of its own, and
so does each block of a page that promises it.
`await` outside of a function works, as in `python -m asyncio`: blocks stand in a function.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.docs.page_run import code_tree
from tests.docs.pages import DOCS, GUIDE, ROOT, Block, blocks, each_alone

SECONDS_MAX: Final = 300
"""With a cold cache; else it takes some seconds."""

HEAD: Final = ("# mypy: allow-redefinition", "async def page() -> None:")


def programs(page: Path) -> list[list[Block]]:
    """The page's blocks, those together that a reader runs in one session; files stand alone."""
    if each_alone(page):
        return [[block] for block in blocks(page, "python")]
    found: list[list[Block]] = [[]]
    files: list[list[Block]] = []
    defined: set[str] = set()
    for block in blocks(page, "python"):
        if block.title.endswith(".py"):
            files.append([block])
            continue
        here = defined_in(block)
        if here & defined:
            found.append([])
            defined.clear()
        defined |= here
        found[-1].append(block)
    return [program for program in (*found, *files) if program]


def defined_in(block: Block) -> set[str]:
    """The functions and classes that a block defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in code_tree(block).body if isinstance(node, kinds)}


def module_of(program: list[Block]) -> str:
    """Its blocks at the lines of their page."""
    first, *_ = program
    is_file = first.title.endswith(".py")
    lines = [] if is_file else list(HEAD)
    for block in program:
        lines += [""] * (block.line - len(lines))
        lines += [line if is_file else f"    {line}".rstrip() for line in block.text.splitlines()]
    return "\n".join(lines) + "\n"


def complaints(modules: list[Path]) -> list[str]:
    """What mypy says of these files, with the project's settings."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, modules)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_code_of_the_guide_is_well_typed(tmp_path: Path) -> None:
    modules: list[Path] = []
    for page in GUIDE:
        for number, program in enumerate(programs(page)):
            module = tmp_path / f"guide_{page.stem.lower()}_{number}.py"
            module.write_text(module_of(program))
            modules.append(module)

    assert complaints(modules) == []


def test_each_block_of_a_page_that_promises_it_is_checked_alone() -> None:
    page = DOCS / "guide" / "client.md"

    assert all(len(program) == 1 for program in programs(page))
    assert len(programs(page)) == len(blocks(page, "python"))


def test_a_wrong_type_in_a_page_would_be_told_at_its_line(tmp_path: Path) -> None:
    texts = ["import roquet\n\nreader = roquet.PullConsumer('a:1')\n", "await reader.queues(3)\n"]
    page = DOCS / "page.md"
    program = [Block(page, line, "python", text) for line, text in zip((4, 9), texts, strict=True)]
    module = tmp_path / "wrong.py"
    module.write_text(module_of(program))

    (complaint,) = complaints([module])

    assert "wrong.py:10: error: Argument 1" in complaint
