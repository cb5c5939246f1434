"""A name server's small files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from roquet import files
from roquet.nameserver.saved_file import SavedFile


def test_what_cannot_be_written_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = SavedFile(tmp_path / "kvConfig.json")
    file.save(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", full)
        with pytest.raises(OSError, match="No space"):
            file.save(b"new")
        file.retry()
        file.retry()
    assert file.path.read_bytes() == b"old"
    for _ in range(2):
        file.retry()
    assert file.path.read_bytes() == b"new"
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert told == ["file not written, it stays as it was and is tried again", "file written again"]
