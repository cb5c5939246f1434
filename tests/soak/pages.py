"""Pages of results that several soak tests share."""

from __future__ import annotations

import re
from pathlib import Path


def replace_section(page: Path, heading: str, text: str) -> None:
    """Write a section of a page; the other ones stay.

    :param heading: the first line of the section, as `# Words`.
    :param text: the section, with its heading.
    """
    before = page.read_text() if page.exists() else ""
    sections = [part.strip() + "\n" for part in re.split(r"^(?=# )", before, flags=re.M)]
    others = [part for part in sections if part.strip() and not part.startswith(heading + "\n")]
    page.write_text("\n".join([*others, text.strip() + "\n"]))
