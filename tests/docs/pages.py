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

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[[^\]]+\]\(([^)#]+)[^)]*\)")
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
    found = [Block(page, text.count("\n", 0, match.start(2)), match[1], match[2]) for match in _FENCED.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def hex_examples(name: str) -> list[bytes]:
    """The bytes of each hex block of a page about a format; what follows two blanks is a comment."""
    return [b"".join(map(_bytes_of_line, block.text.splitlines())) for block in blocks(STORAGE / name, "hex")]


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


def links(page: Path) -> list[str]:
    """The targets of a page's links into this repository."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [target for target in _LINK.findall(text) if "://" not in target]
