"""A drive that has no room for some operations."""

from __future__ import annotations

import errno
import os

from tests.simulation.disk import Drive


class FailingDrive(Drive):
    """The operation `fails_in` more from now on, and `fails` of them from there on, find no
    room.
    """

    fails_in: int = 1 << 60
    fails: int = 0

    def admit(self, operation: str) -> None:
        super().admit(operation)
        if operation in ("open", "create", "write"):
            self.fails_in -= 1
            if -self.fails <= self.fails_in < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
