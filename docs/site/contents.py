"""The site's table of contents, as the pages named README.md have it.

A README.md lists the pages of its folder, in the order of reading; a folder without one belongs to
the README.md above. Each heading of docs/README.md with such a list is a part of the side bar. A
link's text is the page's name there.

Needs no generator, so that `tests/docs/test_contents.py` can check the contents without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TOP: Final = ROOT / "docs" / "README.md"
PATTERNS: Final = (
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "docs/**/*.rst",
    "bench/*.md",
    "tests/interop/*.md",
    "tests/mutants/*.md",
)
"""The pages of the site. Sphinx and pathlib read these patterns alike."""

_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"## +(.+?) *$")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s#]+\.(?:md|rst))\)")


@dataclass(frozen=True)
class Part:
    """What one heading of a README.md lists: names and pages. The pages above the first such
    heading have none.
    """

    heading: str
    pages: list[tuple[str, Path]] = field(default_factory=list)


def all_pages() -> list[Path]:
    """Every page that the site has."""
    return sorted({page for pattern in PATTERNS for page in ROOT.glob(pattern)})


def home_of(page: Path) -> Path:
    """The README.md that has to list the page."""
    for folder in page.parents:
        home = folder / "README.md"
        if folder == ROOT:
            break
        if home != page and home.is_file():
            return home
    return TOP


def parts_of(home: Path) -> list[Part]:
    """What a README.md lists, each page where it comes first. Links into a page, and to pages of
    others, are none.
    """
    parts = [Part("")]
    seen = {home}
    for line in _FENCED.sub("", home.read_text(encoding="utf-8")).splitlines():
        if heading := _HEADING.match(line):
            parts.append(Part(heading[1]))
        for name, target in _LINK.findall(line):
            page = (home.parent / target).resolve()
            if page not in seen and page.is_file() and home_of(page) == home:
                seen.add(page)
                parts[-1].pages.append((_title(name), page))
    return [part for part in parts if part.pages]


def _title(link: str) -> str:
    """A link's text with a capital, unless it is code."""
    text = link.replace("`", "")
    return text if link.startswith("`") else f"{text[0].upper()}{text[1:]}"


def listed(home: Path = TOP) -> Iterator[Path]:
    """The page and all below it, in the order of reading."""
    yield home
    for part in parts_of(home):
        for _, page in part.pages:
            yield from listed(page) if page.name == "README.md" else [page]
