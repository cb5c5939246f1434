"""The real file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.common import files
from roquet.storage.files.disk import RealDisk

FILE_SIZE = 65_536


def test_folders_are_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk()
    path = tmp_path / "queue" / "0" / "file"
    file = disk.open(path, FILE_SIZE)
    assert file.is_new
    file.close()
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync", synced.append)
    disk.sync_names(path)
    disk.sync_names(path)
    assert synced == [path.parent, path.parent.parent, tmp_path, path.parent]
    again = disk.open(path, FILE_SIZE)
    assert not again.is_new
    again.close()
