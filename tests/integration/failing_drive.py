"""A drive of the real kernel that refuses writes: zram, which is given no more memory than it
has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

TOOLS: Final = ("mkfs.ext4", "mount", "umount")
CONTROL: Final = Path("/sys/class/zram-control")
SIZE: Final = 256 << 20
NO_MORE: Final = "4096"
NO_LIMIT: Final = "0"


class FailingDrive:
    """A drive mounted at `root`; new pages are refused while it fails.

    A loop device on a full file system would not do: it takes a write of which a part found room
    for a whole one. Nor would a file system with a journal: it goes offline with the first write of
    that which fails.

    :param root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._number = self._device = ""

    def __enter__(self) -> Self:
        """Skips the test where there can be no such drive."""
        if sys.platform != "linux" or os.geteuid() != 0 or not (CONTROL / "hot_add").exists():
            pytest.skip("a drive that fails needs Linux with zram, and root")
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            pytest.skip(f"a drive that fails needs {', '.join(missing)}")
        try:
            self._number = (CONTROL / "hot_add").read_text().strip()
            self._device = f"/dev/zram{self._number}"
            self._set("disksize", str(SIZE))
            _run(
                "mkfs.ext4",
                "-q",
                "-b",
                "4096",
                "-O",
                "^has_journal",
                "-E",
                "nodiscard",
                self._device,
            )
            self.mount()
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__(None, None, None)
            pytest.skip(f"a zram device cannot be made and mounted here: {error}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._number:
            subprocess.run(("umount", self.root), capture_output=True, check=False)
            self._set("reset", "1")
            (CONTROL / "hot_remove").write_text(self._number)

    def _set(self, name: str, value: str) -> None:
        Path("/sys/block", f"zram{self._number}", name).write_text(value)

    def mount(self) -> None:
        _run("mount", self._device, self.root)

    def remount(self) -> None:
        """Whatever the system had in its memory of the drive is gone."""
        _run("umount", self.root)
        self.mount()

    def fail(self) -> None:
        self._set("mem_limit", NO_MORE)

    def heal(self) -> None:
        self._set("mem_limit", NO_LIMIT)


def _run(*words: str | Path) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
