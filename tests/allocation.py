"""What large buffers cost a process that allocates and frees them again and again."""

from __future__ import annotations

import platform
from typing import Final

ROUNDS: Final = 20
BUFFERS: Final = 4
SIZE: Final = 4 << 20
IS_GLIBC: Final = platform.libc_ver()[0] == "glibc"
"""Only its malloc is set by us."""


def page_faults() -> int:
    """Pages that were new to this process, after two rounds that are not counted."""
    import resource

    before = 0
    for number in range(ROUNDS + 2):
        if number == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        buffers = [b"x" * SIZE for _ in range(BUFFERS)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
