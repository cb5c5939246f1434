"""The pages of the documentation, in parts that tests can look at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
STORAGE: Final = DOCS / "storage"
GUIDE: Final = [ROOT / "README.md", *sorted((DOCS / "guide").glob("*.md"))]
EVERY_PAGE: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

EACH_ALONE: Final = "is a program: copy it into a file"
"""What a page says whose blocks need nothing of each other."""

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_NAMED_PLACE: Final = re.compile(r'<a id="([^"]+)">')
_NOT_IN_ANCHORS: Final = re.compile(r"[^\w -]")
_HEX: Final = re.compile(r"((?:[0-9a-f]{2} ?)+)(?: {2,}.*)?")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line in the page, counted from 0."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def title(self) -> str:
        """What the first line says, if it is a comment."""
        first, *_ = self.text.splitlines()
        return first.removeprefix("# ") if first.startswith("# ") else ""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The page's blocks in these languages, or in all."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start(2)), match[1], match[2])
        for match in _FENCED.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


def each_alone(page: Path) -> bool:
    """Whether the page promises that its blocks need nothing of each other."""
    return EACH_ALONE in page.read_text(encoding="utf-8")


def hex_examples(name: str) -> list[bytes]:
    """The bytes of each hex block of a page about a format."""
    return hex_blocks(STORAGE / name)


def hex_blocks(page: Path) -> list[bytes]:
    """The bytes of each hex block of a page; what follows two blanks is a comment."""
    return [b"".join(map(_bytes_of_line, block.text.splitlines())) for block in blocks(page, "hex")]


def _bytes_of_line(line: str) -> bytes:
    match = _HEX.fullmatch(line)
    assert match is not None, line
    return bytes.fromhex(match[1])


def rows(page: Path, first_title: str) -> list[list[str]]:
    """The cells of the table whose first column has that title, without its two head lines."""
    lines = iter(page.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("|") and _cells(line)[0] == first_title:
            next(lines)
            return list(_rows_until_the_end(lines))
    raise AssertionError(f"{name_of(page)} has no table {first_title}")


def _rows_until_the_end(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield _cells(line)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def code_in(cell: str) -> list[str]:
    """What a cell has between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def links(page: Path) -> list[tuple[str, str]]:
    """File and anchor of a page's links into this repository; the file is empty for a link into the
    page itself.
    """
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    targets = [target.partition("#") for target in _LINK.findall(text) if "://" not in target]
    return [(file, anchor) for file, _, anchor in targets]


def anchors(page: Path) -> set[str]:
    """What a link may lead to in a page: its headings, as GitHub names them, and places with an
    id.
    """
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found: dict[str, None] = {}
    for heading in _HEADING.findall(text):
        name = anchor = _NOT_IN_ANCHORS.sub("", heading.lower()).replace(" ", "-")
        count = 0
        while anchor in found:
            count += 1
            anchor = f"{name}-{count}"
        found[anchor] = None
    return {*found, *_NAMED_PLACE.findall(text)}


def tables(page: Path, first_title: str) -> list[list[str]]:
    """As `rows`, of all tables of the page with that first title."""
    found: list[list[str]] = []
    lines = iter(page.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("|") and _cells(line)[0] == first_title:
            next(lines)
            found += _rows_until_the_end(lines)
    return found
