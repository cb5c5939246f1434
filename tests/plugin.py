"""Loads roquet's pytest plugin in pytest runs of tests."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

LOADED: Final = (
    () if entry_points(group="pytest11", name="roquet") else ("-p", "roquet.pytest_plugin")
)
"""pytest's options that load the plugin where roquet is not installed, or was before it had one."""
