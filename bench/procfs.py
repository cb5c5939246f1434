"""What the system counts about a process and about itself; Linux only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
CORES: Final = len(os.sched_getaffinity(0))
_USER_AND_SYSTEM: Final = slice(11, 13)
"""Counted behind the name of the process, which may hold blanks."""
_IDLE: Final = (3, 4)
"""Idle, and waiting for a disk."""
_COUNTED: Final = 8
"""Guests count in `user` already."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in memory: all, and those that are no pages of files."""

    resident: int
    anonymous: int


def cpu_s(pid: int) -> float:
    """User and system time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[_USER_AND_SYSTEM]) * TICK_S


def busy_s() -> float:
    """Time that all cores together were busy so far."""
    with open("/proc/stat") as stat:
        ticks = [int(field) for field in stat.readline().split()[1 : 1 + _COUNTED]]
    return (sum(ticks) - sum(ticks[index] for index in _IDLE)) * TICK_S


def memory(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return Memory(_bytes(sizes["VmRSS"]), _bytes(sizes["RssAnon"]))


def memory_of_machine() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return _bytes(value)
    raise LookupError("MemTotal")


def _bytes(value: str) -> int:
    return int(value.split()[0]) * 1024
