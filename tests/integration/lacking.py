"""Runs a program in a Python that lacks packages, or functions that other systems do not have.

python lacking.py numpy,os.fork,fcntl,sys.platform=win32 PROGRAM ARGUMENT...

What has a dot is an attribute, which goes, or gets the value that is given. Else it is a module,
with all that is in it. PROGRAM is a module, or a file. Python's own modules need some of them on
this system, so those that clients use are loaded before.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import multiprocessing
import pkgutil
import runpy
import ssl
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

LOADED_BEFORE = (asyncio, concurrent.futures.thread, multiprocessing, ssl, subprocess)


class Hidden(MetaPathFinder):
    """Finds nothing for these modules, and says so."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = frozenset(modules)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def hide(names: Sequence[str]) -> None:
    modules = [name for name in names if "." not in name]
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] in modules:
            del sys.modules[loaded]
    sys.meta_path.insert(0, Hidden(modules))
    for name in names:
        path, _, value = name.partition("=")
        owner, _, attribute = path.rpartition(".")
        if value:
            setattr(pkgutil.resolve_name(owner), attribute, value)
        elif owner and attribute in vars(pkgutil.resolve_name(owner)):
            delattr(pkgutil.resolve_name(owner), attribute)


def main() -> None:
    lacking, program = sys.argv[1:3]
    asyncio.new_event_loop().close()
    hide(lacking.split(","))
    sys.argv = sys.argv[2:]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
