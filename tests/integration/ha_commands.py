"""Commands of `roquet ha` for tests."""

from __future__ import annotations

import subprocess
import sys


def roquet(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roquet.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def done(*words: object) -> str:
    """What a command says that succeeds."""
    ended = roquet(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
