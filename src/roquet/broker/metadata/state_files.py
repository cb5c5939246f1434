"""Saves and loads tables as Apache's JSON files, with backups, in `config/` of the store.

See docs/storage/files.md#state-files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from roquet.common.files import backup_of, replace_with_backup
from roquet.common.listeners import Then
from roquet.common.runtime import Runtime
from roquet.common.saved_file import SavedFile
from roquet.protocol.bodies.body import Body
from roquet.protocol.bodies.tables import parse
from roquet.protocol.json.dialect import dump_indented
from roquet.storage.files.disk import Disk

log = logging.getLogger(__name__)

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"
DELAY_OFFSETS: Final = "delayOffset.json"
CONSUMER_FILTERS: Final = "consumerFilter.json"


T = TypeVar("T", bound=Body)
R = TypeVar("R")


async def until_saved(change: Callable[[Then], None]) -> None:
    """Make a change and wait until it is on disk.

    If the caller is cancelled, the change is saved anyway.

    :param change: makes the change; calls its argument when the change is saved.
    :raises OSError: the file could not be written.
    """
    saved: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    change(lambda error: None if saved.cancelled() else saved.set_result(error))
    error = await saved
    if error is not None:
        raise error


class StateFile(Generic[T]):
    """The file of one table.

    A write saves the table as it is when the write begins, so that many changes need one write.

    :param table: gives the table's present state.
    """

    def __init__(self, disk: Disk, path: Path, table: Callable[[], T], runtime: Runtime) -> None:
        self._disk = disk
        self.path = path
        self._backup = backup_of(path)
        self._file = SavedFile(
            path,
            lambda: partial(_encoded, table()),
            runtime,
            partial(replace_with_backup, read=disk.read, replace=disk.replace),
        )
        self.retry = self._file.retry
        self.was_damaged = False
        """Whether `load` found a file or backup that it could not decode."""

    def load(self, kind: Callable[[Mapping[str, Any]], R]) -> R | None:
        """Load the table from the file, or from the backup if the file is damaged.

        A damaged file is moved aside, never deleted, and logged in one line: it never keeps the
        broker from starting. An empty file counts as damaged, because none is ever written.

        :param kind: decodes the JSON of the table.
        :returns: the table, None if neither file could be decoded.
        """
        self._remove_unfinished()
        data = self._disk.read(self.path)
        backup = self._disk.read(self._backup)
        saved, why = _parsed(data, kind)
        if why and data is not None:
            self.was_damaged = True
            why = f"{self.path} {why}; it was moved to {self._moved_aside(self.path, data)}"
        if saved is None and backup is not None:
            saved, why_not = _parsed(backup, kind)
            if why_not:
                self.was_damaged = True
                moved = self._moved_aside(self._backup, backup)
                why = "; ".join(
                    filter(None, (why, f"{self._backup} {why_not}; it was moved to {moved}"))
                )
            else:
                self._put_back(backup)
        if why:
            goes_on = (
                "its backup is used"
                if saved is not None
                else "the broker starts without this table"
            )
            log.error("damaged state file: %s; %s", why, goes_on)
        return saved

    def _remove_unfinished(self) -> None:
        """Delete the temporary file of a write that a crash interrupted."""
        names = {name for name, _ in self._disk.names(self.path.parent)}
        for path in (self.path, self._backup):
            unfinished = path.with_name(path.name + ".tmp")
            if unfinished.name in names:
                with suppress(OSError):  # a leftover does no harm
                    self._disk.delete(unfinished)

    def keep_a_copy(self) -> None:
        """Copy the file beside itself: the next write will drop the entries that cannot be used."""
        data = self._disk.read(self.path)
        if data is not None:
            with suppress(OSError, StopIteration):
                self._disk.replace(self._free_name(self.path, data), data)

    def _free_name(self, path: Path, data: bytes) -> Path:
        """A name for a copy of damaged bytes: an unused one, or one with the same bytes.

        :raises StopIteration: all 99 names are used.
        """
        names = (
            path.with_name(f"{path.name}.damaged{number}")
            for number in ("", *map("-{}".format, range(2, 100)))
        )
        return next(name for name in names if self._disk.read(name) in (None, data))

    def _moved_aside(self, path: Path, data: bytes) -> str:
        """Move a damaged file aside. Returns its new path, or why it could not be moved."""
        try:
            free = self._free_name(path, data)
            self._disk.replace(free, data)
            self._disk.delete(path)
        except (OSError, StopIteration) as error:
            return (
                f"nowhere ({error or 'there are too many'}),"
                " and is there until the next change of the table"
            )
        return str(free)

    def _put_back(self, data: bytes) -> None:
        """Replace the file by its backup now; else the next write would back up damaged bytes."""
        try:
            self._disk.replace(self.path, data)
        except OSError as error:
            log.error("file not restored from its backup: path=%s error=%s", self.path, error)

    def changed(self, then: Then | None = None) -> None:
        """Write the changed table soon; `then` is called when it is on disk."""
        written = self._file.save()
        if then is not None:
            written.add_done_callback(partial(_tell, then))

    async def flush(self) -> None:
        """Wait until the table as it is now is on disk.

        :raises OSError: the file could not be written.
        """
        await until_saved(self.changed)


def _encoded(table: Body) -> bytes:
    return dump_indented(table.to_json())


def _tell(then: Then, written: asyncio.Task[None]) -> None:
    if not written.cancelled():
        error = written.exception()
        if error is None or isinstance(error, OSError):
            then(error)


def _parsed(data: bytes | None, kind: Callable[[Mapping[str, Any]], R]) -> tuple[R | None, str]:
    """Decode the bytes of a file. Returns the table, or None and the reason."""
    if data is None:
        return None, ""
    if not data:
        return None, "has no bytes"
    try:
        return parse(data, kind), ""
    except (ValueError, RecursionError, MemoryError) as error:
        return None, f"cannot be read: {str(error)[:200]}"
