"""The list of decisions names every page, with its title."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_the_list_has_every_page_under_its_title() -> None:
    listed = re.findall(
        r"^- (\d{4}): \[(.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    pages = sorted(FOLDER.glob("[0-9]*.md"))
    assert [name for _, _, name in listed] == [page.name for page in pages]
    for (number, title, name), page in zip(listed, pages, strict=True):
        assert name.startswith(number)
        assert title in page.read_text().splitlines()[0]
