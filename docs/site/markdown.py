"""What Sphinx is told of pages that are written for code hosts: their contents, and their named
places.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pygments.lexers import TextLexer
from sphinx.application import Sphinx

from docs.site.contents import ROOT, Part, parts_of

_NAMED_PLACE: Final = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", translate)
    app.add_lexer("hex", TextLexer)
    return {"parallel_read_safe": True}


def translate(app: Sphinx, document: str, source: list[str]) -> None:
    """Named places become targets that links are checked against; a README.md gets its contents,
    for the side bar.
    """
    page = ROOT / f"{document}.md"
    if not page.is_file():
        return
    source[0] = _NAMED_PLACE.sub(r"(\1)=", source[0])
    if page.name == "README.md":
        source[0] += "".join(map(_tree, parts_of(page)))


def _tree(part: Part) -> str:
    caption = f":caption: {part.heading}\n" if part.heading else ""
    entries = "\n".join(f"{name} <{_document(page)}>" for name, page in part.pages)
    return f"\n\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n"


def _document(page: Path) -> str:
    return f"/{page.relative_to(ROOT).with_suffix('').as_posix()}"
