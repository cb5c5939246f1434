"""Who may import whom, and which modules touch nothing outside themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[1] / "src"

MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    package: frozenset(allowed.split())
    for package, allowed in {
        "common": "",
        "protocol": "",
        "storage": "protocol",
        "storetool": "storage protocol",
        "replication": "storage",
        "transport": "protocol",
        "nameserver": "transport protocol",
        "allocation": "protocol",
        "client": "allocation transport protocol",
        "broker": "replication storage transport protocol",
        "admin": "client transport protocol",
        "spark": "admin client storetool storage protocol",
        "cli": "admin nameserver broker dev storetool spark",
        "dev": "nameserver broker replication transport protocol",
        "pytest_plugin": "dev",
        "cluster": "admin client protocol",
        "sync": "admin client cluster protocol",
        "compat": "client protocol sync",
        "opentelemetry": "client protocol",
        "__main__": "cli",
        "__init__": "allocation client cluster dev protocol sync transport",
    }.items()
}
"""What a package may import beside itself, `errors` and `common`."""

EVERYBODY: Final = frozenset({"errors", "common"})

FOLDERS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    package: {folder: frozenset(allowed.split()) for folder, allowed in folders.items()}
    for package, folders in {
        "protocol": {
            "remoting": "json",
            "json": "",
            "records": "remoting",
            "filters": "records",
            "bodies": "json records filters",
            "headers": "remoting records",
            "templates": "remoting records",
        },
        "storage": {
            "files": "",
            "log": "files",
            "queues": "files log",
            "index": "files log",
            "dispatch": "log queues index",
        },
        "compat": {"rocketmq": ""},
        "storetool": {"read": "files", "check": "files read state"},
        "client": {
            "_net": "config hook metrics received",
            "_send": "_net counters metrics received send_result",
            "_consume": "_net _send hook metrics rebalance_listener received selector",
        },
        "broker": {
            "config": "",
            "metadata": "config",
            "delivery": "config",
            "offsets": "config delivery metadata",
            "delay": "config delivery offsets",
            "transactions": "config delay delivery metadata offsets",
            "metrics": "config metadata offsets",
            "maintenance": "config delay delivery",
            "handlers": "config delivery maintenance metadata metrics offsets transactions",
            "ha": "config delivery metadata offsets component_configs tables",
        },
        "spark": {
            "_options": "",
            "_arrow": "_options",
            "_write": "_arrow _options _worker",
            "_read": "_arrow _options _worker",
            "_storefiles": "_arrow _options _worker",
            "pipelines": "_arrow _options _read _write",
        },
        "cli": {
            "ha": "access configuration output",
            "pipeline": "access output values",
            "store": "output values",
        },
    }.items()
}
"""What a folder of a package may import of the same package. Modules beside the folders may import
all of them.
"""

RECORDS_ONLY: Final = frozenset({"storage", "storetool", "replication"})
"""Packages that know the records of the protocol, but no requests and responses."""

OUTSIDE: Final = frozenset({"asyncio", "socket", "os", "time"})


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES: Final = {name_of(path): path for path in sorted((SOURCE / "roquet").rglob("*.py"))}


def says_pure(path: Path) -> bool:
    return (ast.get_docstring(ast.parse(path.read_bytes())) or "").startswith("PURE")


PURE_MODULES: Final = [
    name for name, path in MODULES.items() if name.startswith("roquet.protocol.") or says_pure(path)
]
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


def child_of(module: str) -> str:
    """The folder or module of its package that a module is in."""
    return [*module.split("."), "__init__", "__init__"][2]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_stands_below_it(module: str) -> None:
    package = package_of(module)
    allowed = (
        {"common", "errors"}
        if package == "common"
        else {package, *EVERYBODY, *MAY_IMPORT.get(package, ())}
    )

    assert {package_of(name) for name in ours(module)} <= allowed


@pytest.mark.parametrize("module", MODULES)
def test_a_folder_imports_only_what_stands_below_it(module: str) -> None:
    package, child = package_of(module), child_of(module)
    folders = FOLDERS.get(package, {})
    if child in folders:
        siblings = {child_of(name) for name in ours(module) if package_of(name) == package}
        assert siblings <= {child, *folders[child]}


@pytest.mark.parametrize(
    "module", [module for module in MODULES if package_of(module) in RECORDS_ONLY]
)
def test_who_keeps_files_knows_no_requests(module: str) -> None:
    """Errors of the store become response codes in `transport/failures.py`."""
    folders = {child_of(name) for name in ours(module) if package_of(name) == "protocol"}

    assert folders.isdisjoint({"remoting", "headers", "bodies", "templates"})


@pytest.mark.parametrize("package", sorted(MAY_IMPORT.keys() - {"__init__", "__main__"}))
def test_folders_and_modules_of_a_package_import_each_other_in_no_circle(package: str) -> None:
    inside = [module for module in MODULES if package_of(module) == package]
    arrows = {child_of(module): set[str]() for module in inside}
    for module in inside:
        arrows[child_of(module)] |= {
            child_of(name) for name in ours(module) if package_of(name) == package
        }
    order = TopologicalSorter({child: below - {child} for child, below in arrows.items()})

    assert len(list(order.static_order())) == len(arrows)


def test_a_circle_of_folders_would_be_seen() -> None:
    with pytest.raises(CycleError):
        list(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())


def test_every_folder_of_a_package_has_its_place_in_the_table() -> None:
    found = {(package_of(name), child_of(name)) for name in MODULES if len(name.split(".")) > 3}

    assert found == {
        (package, folder) for package, folders in FOLDERS.items() for folder in folders
    }


@pytest.mark.parametrize("module", PURE_MODULES)
def test_a_pure_module_reaches_nothing_outside_not_even_through_others(module: str) -> None:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        assert OUTSIDE.isdisjoint(imported.split(".")[0] for imported in imports_of(name)), name
        reached.add(name)
        waiting += [other for other in ours(name) if other in MODULES and other not in reached]


@pytest.mark.parametrize("package", sorted(MAY_IMPORT.keys() - {"__init__", "__main__"}))
def test_a_package_says_what_it_may_import(package: str) -> None:
    assert f"May import: {', '.join(sorted(MAY_IMPORT[package])) or 'nothing'}." in docstring_of(
        package
    )


@pytest.mark.parametrize(
    "folder", [f"{package}.{folder}" for package, folders in FOLDERS.items() for folder in folders]
)
def test_a_folder_says_what_it_may_import(folder: str) -> None:
    package, _, child = folder.partition(".")
    allowed = ", ".join(sorted(FOLDERS[package][child])) or "nothing"
    assert f"May import of `{package}`: {allowed}." in docstring_of(folder)


def docstring_of(package: str) -> str:
    return " ".join(
        (ast.get_docstring(ast.parse(MODULES[f"roquet.{package}"].read_bytes())) or "").split()
    )


def test_every_package_has_its_place_in_the_table() -> None:
    assert {package_of(module) for module in MODULES} <= MAY_IMPORT.keys() | EVERYBODY


def test_an_import_below_its_place_would_be_seen() -> None:
    tree = ast.parse("def f():\n    from roquet.broker import nowhere\n    import os.path\n")

    assert list(imported_names(tree)) == ["roquet.broker", "os.path"]
