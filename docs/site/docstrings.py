"""Docstrings as Sphinx reads them: indented paragraphs are code, and pages that are cited are
links.
"""

from __future__ import annotations

import re
from typing import Final

from docs.site.contents import ROOT

_CITED: Final = re.compile(r"\bdocs/([\w/-]+)\.md(?:#([\w-]+))?")
_LIST_OR_FIELD: Final = (":", "- ")


def as_restructured_text(lines: list[str]) -> list[str]:
    """A docstring's lines; what they say stays the same."""
    return [_CITED.sub(_link, line) for line in _with_code(lines)]


def _with_code(lines: list[str]) -> list[str]:
    """The lines, with a mark before each indented paragraph that does not continue a list or a
    field.
    """
    found: list[str] = []
    outer = ""
    """The last line that was not indented."""
    for line in lines:
        if not line.startswith(" "):
            outer = line or outer
        elif (
            found
            and not found[-1]
            and not outer.startswith(_LIST_OR_FIELD)
            and not outer.endswith("::")
        ):
            found += [".. code-block:: python", ""]
            outer = "::"
        found.append(line)
    return found


def _link(cited: re.Match[str]) -> str:
    page, place = cited.groups()
    is_named = place is not None and f'<a id="{place}">' in (
        ROOT / "docs" / f"{page}.md"
    ).read_text(encoding="utf-8")
    return f":ref:`{cited[0]} <{place}>`" if is_named else f":doc:`{cited[0]} </docs/{page}>`"
