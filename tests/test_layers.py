"""Who may import whom, and which modules touch nothing outside themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[1] / "src"

MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    package: frozenset(allowed.split())
    for package, allowed in {
        "protocol": "",
        "storage": "protocol",
        "inspect": "storage protocol",
        "replication": "storage",
        "transport": "protocol",
        "nameserver": "transport protocol",
        "client": "transport protocol",
        "broker": "replication storage transport protocol",
        "admin": "client transport protocol",
        "spark": "admin client inspect storage protocol",
        "dashboard": "admin",
        "cli": "admin nameserver broker dev inspect spark",
        "dev": "nameserver broker",
        "__init__": "client dev protocol transport",
    }.items()
}
"""What a package may import beside itself and the root modules."""

ROOT: Final[Mapping[str, frozenset[str]]] = {
    "descriptors": frozenset(),
    "errors": frozenset(),
    "files": frozenset(),
    "units": frozenset(),
    "garbage": frozenset(),
    "memory": frozenset(),
    "places": frozenset(),
    "runtime": frozenset(),
    "limited_log": frozenset(),
    "properties": frozenset(),
    "settings": frozenset({"errors", "properties"}),
    "steps": frozenset(),
}
"""The modules that all may import, and what they may import of each other."""

OUTSIDE: Final = frozenset({"asyncio", "socket", "os", "time"})


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES: Final = {name_of(path): path for path in sorted((SOURCE / "roquet").rglob("*.py"))}


def says_pure(path: Path) -> bool:
    return (ast.get_docstring(ast.parse(path.read_bytes())) or "").startswith("PURE")


PURE_MODULES: Final = [name for name, path in MODULES.items() if name.startswith("roquet.protocol.") or says_pure(path)]
"""The protocol, and whoever says that it is pure."""


@cache
def imports_of(module: str) -> frozenset[str]:
    """Every module that a module names in an import, wherever in it."""
    return frozenset(imported_names(ast.parse(MODULES[module].read_bytes())))


def imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (submodule_or(node.module, alias.name) for alias in node.names)


def submodule_or(module: str, name: str) -> str:
    """`from package import thing` names a module where there is one of that name."""
    return f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def ours(module: str) -> list[str]:
    return [name for name in imports_of(module) if name.split(".")[0] == "roquet"]


def package_of(module: str) -> str:
    return [*module.split("."), "__init__"][1]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_stands_below_it(module: str) -> None:
    package = package_of(module)
    allowed = ROOT[package] if package in ROOT else {package, *ROOT, *MAY_IMPORT[package]}

    assert {package_of(name) for name in ours(module)} <= allowed


@pytest.mark.parametrize("module", PURE_MODULES)
def test_a_pure_module_reaches_nothing_outside_not_even_through_others(module: str) -> None:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        assert OUTSIDE.isdisjoint(imported.split(".")[0] for imported in imports_of(name)), name
        reached.add(name)
        waiting += [other for other in ours(name) if other in MODULES and other not in reached]


def test_every_package_has_its_place_in_the_table() -> None:
    assert {package_of(module) for module in MODULES} <= MAY_IMPORT.keys() | ROOT.keys()


def test_an_import_below_its_place_would_be_seen() -> None:
    tree = ast.parse("def f():\n    from roquet.broker import nowhere\n    import os.path\n")

    assert list(imported_names(tree)) == ["roquet.broker", "os.path"]
