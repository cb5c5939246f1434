"""A small file of a name server: replaced as a whole, tried again while it cannot be written."""

from __future__ import annotations

import logging
from pathlib import Path

from roquet.files import replace_with_backup

log = logging.getLogger(__name__)


class SavedFile:
    """Keeps: the file holds what `save` was given last, or what it held before, as long as that cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsaved: bytes | None = None

    def read(self) -> bytes:
        """What it holds, or shall hold; nothing where there is no file.

        :raises OSError: it cannot be read.
        """
        if self._unsaved is not None:
            return self._unsaved
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def save(self, data: bytes) -> None:
        """
        :raises OSError: it could not be written; `retry` does that later.
        """
        was_failing, self._unsaved = self._unsaved is not None, data
        try:
            replace_with_backup(self.path, data)
        except OSError as error:
            if not was_failing:
                log.error("file not written, it stays as it was and is tried again: path=%s error=%s", self.path, error)
            raise
        if was_failing:
            log.warning("file written again: path=%s", self.path)
        self._unsaved = None

    def retry(self) -> None:
        """Write what could not be written before."""
        if self._unsaved is not None:
            try:
                self.save(self._unsaved)
            except OSError:
                return
