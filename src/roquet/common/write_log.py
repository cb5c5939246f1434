"""Logs that a file cannot be written, once, and that it can be again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class WriteLog:
    """Watches the writes of a file that its owner repeats until one succeeds.

    :param log: the owner's logger.
    """

    def __init__(self, log: logging.Logger, path: Path) -> None:
        self._log = log
        self._path = path
        self.is_failing = False
        """Whether the last write failed."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager around one write; passes its errors on.

        An OSError, and a ValueError of making the content, are failures of the write.
        """
        try:
            yield
        except (OSError, ValueError) as error:
            if not self.is_failing:
                self._log.error(
                    "file not written, it stays as it was and is tried again: path=%s error=%s",
                    self._path,
                    error,
                )
            self.is_failing = True
            raise
        if self.is_failing:
            self._log.warning("file written again: path=%s", self._path)
        self.is_failing = False
