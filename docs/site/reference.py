"""The API reference: what docstrings say, as Sphinx reads it, and names that lead to their
places.
"""

from __future__ import annotations

import re
from typing import Any, Final

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from docs.site.docstrings import as_restructured_text

_FUNCTION: Final = re.compile(r"<function (\w+)>")
_UNNAMED: Final = re.compile(r"<factory>|<function [\w.]*<lambda>>")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", translate)
    app.connect("autodoc-process-signature", sign)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True}


def translate(
    app: Sphinx, kind: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    lines[:] = as_restructured_text(lines)


def sign(
    app: Sphinx,
    kind: str,
    name: str,
    thing: object,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Defaults are values. Of a function, its name says what it does; `...` is one that has no
    name.
    """
    return signature and _UNNAMED.sub("...", _FUNCTION.sub(r"\1", signature)), returned


def resolve(
    app: Sphinx, environment: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Types and docstrings name a class where it is defined, or several errors at once; readers
    know public names.
    """
    if node.get("refdomain") != "py":
        return None
    names = node["reftarget"].split(", ")
    if len(names) == 1 or node["reftype"] != "exc":
        return _resolved(app, environment, node, content, node["reftarget"])
    several = nodes.inline()
    for number, name in enumerate(names):
        several += [nodes.Text(", ")] * (number > 0)
        one = type(content)("", name, classes=content["classes"])
        several += _resolved(app, environment, node, one, name) or one
    return several


def _resolved(
    app: Sphinx,
    environment: BuildEnvironment,
    node: pending_xref,
    content: nodes.TextElement,
    name: str,
) -> nodes.Node | None:
    """A link to what the reference has under the last part of that name, if that is one thing."""
    domain = environment.domains.python_domain
    last = name.rpartition(".")[2]
    public = [
        known
        for known, entry in domain.objects.items()
        if known.rpartition(".")[2] == last and entry.objtype in ("class", "exception", "function")
    ]
    if len(public) != 1:
        return None
    found: nodes.Node | None = domain.resolve_xref(
        environment, node["refdoc"], app.builder, "obj", public[0], node, content
    )
    return found
