"""Runs the code blocks of one page of the docs, in order."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import CodeType
from typing import Any, Final

from tests.docs.pages import (
    Block,
    name_of,
)

ADDRESS: Final = "127.0.0.1:9876"
"""What stands in the guide for the name server."""

SECONDS_MAX: Final = 60


class PageRun:
    """The blocks of one page, run one after the other.

    Invariant: all see the same namespace; `files` are those that were written instead.
    """

    def __init__(self, name_server: str, folder: Path) -> None:
        self._name_server = name_server
        self._folder = folder
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self.files: list[str] = []

    def blocks(self, these: list[Block]) -> None:
        with asyncio.Runner() as runner:
            for block in these:
                text = block.text.replace(ADDRESS, self._name_server)
                if block.title.endswith(".py"):
                    (self._folder / block.title).write_text(text)
                    self.files.append(block.title)
                else:
                    self._run(code_of(block, text), runner)
        shared = self._namespace.get("shared")
        if callable(shared):
            # A page leaves its shared blocking client open, as a server does. It would log that the
            # cluster is gone, in the middle of a later test.
            shared().close()

    def value(self, name: str) -> Any:
        """What the blocks left under that name."""
        return self._namespace[name]

    def _run(self, code: CodeType, runner: asyncio.Runner) -> None:
        awaited: Coroutine[Any, Any, None] | None = eval(code, self._namespace)
        if awaited is not None:
            runner.run(asyncio.wait_for(awaited, SECONDS_MAX))


def code_tree(block: Block) -> ast.Module:
    """The syntax tree of a block, in which `await` may stand outside of functions."""
    tree = compile(
        block.text,
        name_of(block.page),
        "exec",
        ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    assert isinstance(tree, ast.Module)
    return tree


def code_of(block: Block, text: str) -> CodeType:
    """Its code, with the page's line numbers."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile("\n" * block.line + text, name_of(block.page), "exec", flags, dont_inherit=True)
    assert isinstance(code, CodeType)
    return code
