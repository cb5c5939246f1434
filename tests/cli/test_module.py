"""The package as a program."""

from __future__ import annotations

import subprocess
import sys


def test_the_package_runs_as_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "roquet", "--help"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Usage: roquet ")
