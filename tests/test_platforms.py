"""What one system has and another has not is used in one place each, which has an answer for both.

`make check` lets mypy look for names that Windows or macOS lack. It does not see what each system
has and only some can do: methods of event loops, and packages that are not made for all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[1] / "src"

PLACES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(places.split())
    for name, places in {
        "add_signal_handler": "roquet/cli/serve.py",  # NotImplementedError on Windows
        "remove_signal_handler": "roquet/cli/serve.py",
        "uvloop": "roquet/cli/serve.py",  # not made for Windows
        "fcntl": "roquet/storage/files/file_lock.py",
        "msvcrt": "roquet/storage/files/file_lock.py",
        "resource": "roquet/common/descriptors.py",
        "mallopt": "roquet/common/memory.py",
        # Windows's loop cannot watch any descriptor, nor pipes that it did not open.
        "add_reader": "",
        "add_writer": "",
        "connect_read_pipe": "",
        "connect_write_pipe": "",
        # Sockets of the file system.
        "AF_UNIX": "roquet/spark/session.py",
        "create_unix_connection": "",
        "create_unix_server": "",
        "open_unix_connection": "",
        "start_unix_server": "",
        # Several processes at one port: each system understands something else by it.
        "reuse_port": "",
        "SO_REUSEPORT": "",
        "reuse_address": "",
        "SO_REUSEADDR": "",
        # What a fork takes over works on Linux only.
        "fork": "",
        "register_at_fork": "",
        # A policy, or a signal's handler, is the program's, not ours. 3.14 deprecates the former.
        "set_event_loop_policy": "",
        "get_event_loop_policy": "",
        "get_event_loop": "",
        "signal": "roquet/cli/serve.py roquet/common/stop_signals.py",
        "utcnow": "",
        "utcfromtimestamp": "",
        "iscoroutinefunction": "roquet/common/callables.py",  # inspect's, not asyncio's,
    }.items()
}
"""A name -> the files that may use it, as a module, a function, an attribute or an argument."""


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.name.partition(".")[0] for alias in aliases)
            case ast.Constant(value=str(name)):  # `getattr(os, "fork")`
                yield name


def used_in(path: Path) -> set[str]:
    return set(names_in(ast.parse(path.read_bytes()))) & PLACES.keys()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_what_not_every_system_has_is_used_in_its_place_only(path: Path) -> None:
    place = path.relative_to(SOURCE).as_posix()

    assert {name for name in used_in(path) if place not in PLACES[name]} == set()


def test_each_place_is_needed() -> None:
    assert {
        (name, place)
        for name, places in PLACES.items()
        for place in places
        if name not in used_in(SOURCE / place)
    } == set()


def test_every_way_to_name_one_would_be_seen() -> None:
    tree = ast.parse(
        "import uvloop.loop\nfrom os import fork\nloop.add_reader(1)\n"
        "serve(reuse_port=True)\ngetattr(os, 'register_at_fork')()\n"
    )

    assert {"uvloop", "fork", "add_reader", "reuse_port", "register_at_fork"} <= set(names_in(tree))
