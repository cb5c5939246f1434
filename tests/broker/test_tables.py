"""The tables of a broker, saved together."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker import state_files
from roquet.broker.tables import Tables
from roquet.runtime import Runtime
from roquet.storage.disk import RealDisk
from tests.broker.served import config


async def test_one_table_that_cannot_be_written_does_not_keep_the_others_from_the_drive(tmp_path: Path) -> None:
    settings = config("10.0.0.1", storePathRootDir=tmp_path)
    tables = Tables(settings, Runtime(), RealDisk(), lambda: None)
    (settings.state_folder / state_files.TOPICS).mkdir(parents=True)
    tables.progress.commit("G", "T", 0, 7)
    with pytest.raises(IsADirectoryError):
        await tables.save()
    again = Tables(settings, Runtime(), RealDisk(), lambda: None)
    (settings.state_folder / state_files.TOPICS).rmdir()
    again.load()
    assert again.progress.committed("G", "T", 0) == 7
