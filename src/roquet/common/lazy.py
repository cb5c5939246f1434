"""Imports the public names of a package at their first use: most programs need few of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes_of(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose public names are defined in its modules.

    :param homes: public name -> the module that defines it, or the module itself.
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        value = home if home.__name__ == f"{package}.{name}" else getattr(home, name)
        vars(sys.modules[package])[name] = value  # later uses do not call `__getattr__`
        return value

    return attribute
