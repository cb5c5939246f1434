"""How Sphinx makes the site: `make docs`."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site.contents import PATTERNS, TOP  # noqa: E402

project = "roquet"
version = release = version_of("roquet")
root_doc = TOP.relative_to(ROOT).with_suffix("").as_posix()
include_patterns = list(PATTERNS)
exclude_patterns = [".*", "build", "src", "demo*", "examples", "**/__pycache__", "bench/out"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
extensions = ["sphinx.ext.autodoc", "myst_parser", "docs.site.markdown", "docs.site.reference"]

myst_heading_anchors = 6
"""Links lead to headings by the names that code hosts give them, of every level."""

autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
smartquotes_action = "D"
"""Dashes, and no quotes: those of docstrings are code."""
default_role = "py:obj"
"""What docstrings have between single backticks is code, and a link where the reference has the
name.
"""
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"roquet {release}"
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]
html_copy_source = False
html_show_copyright = False
highlight_language = "none"
"""Blocks without a language are layouts, formulas and output."""
