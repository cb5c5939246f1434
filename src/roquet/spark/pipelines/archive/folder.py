"""The folder of an archive: Parquet files, and states that say which of the files belong to it.

    topic=orders/day=2026-11-21/00000003-part-00000-….parquet
    _roquet/00000003.json        the archive's state after its third change
    _roquet/staged-00000004-…/   files of a change in progress

Invariant: a Parquet file is moved into or deleted from the folder only after the state that says so
is on disk. The next opening of the archive undoes an interrupted change without a state, and
completes one with a state.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import uuid4

import pyarrow.parquet as pq

from roquet.common.files import sync
from roquet.errors import StoreError
from roquet.spark.pipelines._shared.location import is_url
from roquet.spark.pipelines.archive.state import ArchiveError, ArchiveState, StoredFile
from roquet.storage.files.disk import RealDisk

STATES: Final = "_roquet"
"""Readers of Parquet ignore names that begin with an underscore."""
STATES_KEPT: Final = 2
_STATE_NAME: Final = re.compile(r"(\d{8})\.json")


class ArchiveFolder:
    """One archive in a folder that Spark's driver and executors see under the same path.

    :raises ArchiveError: the path is a URL. Changes need atomic renames, which object stores do not
        have.
    """

    def __init__(self, folder: str | Path) -> None:
        if is_url(folder):
            raise ArchiveError(
                f"{folder}: an archive is a folder of a local or mounted file system, not a URL; "
                "only format delta may have a URL"
            )
        self.path = Path(folder).absolute()
        self._states = self.path / STATES
        self._disk = RealDisk()

    @contextmanager
    def changing(self) -> Iterator[ArchiveState]:
        """Lock the archive, and return its state.

        An interrupted change is completed or deleted first. Executors that outlive their driver may
        still write files of such a change; the next change deletes these.

        :raises ArchiveError: another process is changing the archive.
        """
        self._states.mkdir(parents=True, exist_ok=True)
        try:
            lock = self._disk.lock(self._states / "lock")
        except StoreError as error:
            raise ArchiveError(
                f"{self.path} is being changed by another process: wait for it, or stop it"
            ) from error
        try:
            state = self.state()
            self._check_nothing_else(state)
            for leftover in self._states.glob("staged-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield state
        finally:
            lock.release()

    def state(self) -> ArchiveState:
        """The newest state. Completes an interrupted change whose state was written."""
        names = self._versions()
        if not names:
            return ArchiveState()
        path = self._states / names[-1]
        state = ArchiveState.from_json(path.read_text(encoding="utf-8"), str(path))
        self._complete(state)
        return state

    def staging(self, state: ArchiveState) -> Path:
        """A folder that does not exist yet, for the files of the change after `state`.

        The name is new each time, because executors of a killed driver may still write to its
        folder.
        """
        return self._states / f"staged-{state.version + 1:08}-{uuid4().hex[:8]}"

    def staged_files(self, staging: Path) -> dict[str, StoredFile]:
        """Rename the files that Spark wrote to their final names and sync them.

        :returns: by their paths within the archive.
        """
        prefix = staging.name.split("-")[1]
        files: dict[str, StoredFile] = {}
        for path in sorted(staging.glob("topic=*/day=*/*.parquet")):
            if not path.name.startswith(prefix):
                path = path.rename(path.with_name(f"{prefix}-{path.name}"))
            sync(path)
            name = path.relative_to(staging).as_posix()
            files[name] = StoredFile(pq.read_metadata(path).num_rows, path.stat().st_size)
        _sync_folders(staging, files)
        return files

    def commit(self, state: ArchiveState, staging: Path) -> None:
        """Commit a change: write the state, then move the files.

        Once the state is written the change is durable, even if moving the files is interrupted.
        """
        state = replace(state, staged=staging.name)
        self._disk.replace(self._states / f"{state.version:08}.json", state.to_json().encode())
        self._complete(state)
        for name in self._versions()[:-STATES_KEPT]:
            (self._states / name).unlink(missing_ok=True)

    def _check_nothing_else(self, state: ArchiveState) -> None:
        others = sorted(name for name in os.listdir(self.path) if name != STATES)
        if others and not state.version:
            raise ArchiveError(
                f"{self.path} is no archive and not empty ({others[0]}): give a new folder"
            )

    def _versions(self) -> list[str]:
        names = os.listdir(self._states) if self._states.is_dir() else []
        return sorted(name for name in names if _STATE_NAME.fullmatch(name))

    def _complete(self, state: ArchiveState) -> None:
        """Move and delete the files as the state says, if that is not done yet.

        Several processes may do so at the same time.
        """
        staging = self._states / state.staged
        if not state.staged or not staging.is_dir():
            return
        for name in state.files:
            if (staging / name).exists():
                _move(staging / name, self.path / name)
        for name in state.removed:
            (self.path / name).unlink(missing_ok=True)
        _sync_folders(self.path, (*state.files, *state.removed))
        shutil.rmtree(staging, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except FileNotFoundError:
        if not target.exists():
            raise


def _sync_folders(root: Path, names: Iterable[str]) -> None:
    """Sync the folders of these files, so that the names of files and folders are durable."""
    for folder in sorted({folder for name in names for folder in PurePosixPath(name).parents}):
        sync(root / folder)
