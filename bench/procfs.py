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
_PARENT: Final = 1
_USER_AND_SYSTEM_OF_ALL: Final = slice(11, 15)
"""With the time of children that ended and were waited for."""
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


def exact_cpu_s(pid: int) -> float:
    """Time of all threads that a process has now, to the nanosecond: `cpu_s` counts in hundredths
    of a second.
    """
    return (
        sum(
            int(path.read_text().split()[0])
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
        / 1e9
    )


def tree_cpu_s(pid: int) -> float:
    """User and system time so far of a process and all below it, those that ended among them."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        parents[int(path.parent.name)] = int(fields[_PARENT])
        ticks[int(path.parent.name)] = sum(int(field) for field in fields[_USER_AND_SYSTEM_OF_ALL])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return sum(ticks[each] for each in found) * TICK_S


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
