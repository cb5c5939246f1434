"""The machine and the programs of a measurement, in general words."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from bench import procfs
from tests.interop.toolchain import java

LIBRARIES: Final = ("uvloop", "orjson", "numpy")


def describe() -> str:
    memory = round(procfs.memory_of_machine() / 1024**3)
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return (
        f"{procfs.CORES} cores for clients and brokers together, {memory} GiB of memory, {system}"
    )


def describe_python() -> str:
    libraries = ", ".join(f"{name} {version_of(name)}" for name in LIBRARIES)
    return f"{platform.python_implementation()} {platform.python_version()} with {libraries}"


def describe_java() -> str:
    shown = subprocess.run(
        [java(), "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    return next(line for line in shown if " version " in line).replace('"', "")


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
