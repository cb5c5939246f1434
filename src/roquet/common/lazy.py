"""Public names of a package that are imported when they are asked for: most programs need few of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes_of(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names stand in its modules.

    :param homes: the module that each name comes from, or is.
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        value = home if home.__name__ == f"{package}.{name}" else getattr(home, name)
        vars(sys.modules[package])[name] = value  # the next time it is found without this
        return value

    return attribute
