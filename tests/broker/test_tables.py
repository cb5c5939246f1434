"""The tables of a broker, saved together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.broker.metadata import state_files
from roquet.broker.tables import Tables
from roquet.common.runtime import Runtime
from roquet.storage.files.disk import RealDisk
from tests.broker.served import config


async def test_one_table_that_cannot_be_written_does_not_keep_the_others_from_the_drive(
    tmp_path: Path,
) -> None:
    settings = config("10.0.0.1", storePathRootDir=tmp_path)
    tables = Tables(settings, Runtime(), RealDisk())
    (settings.state_folder / state_files.TOPICS).mkdir(parents=True)
    tables.offsets.commit("G", "T", 0, 7)
    with pytest.raises(IsADirectoryError):
        await tables.save()
    again = Tables(settings, Runtime(), RealDisk())
    (settings.state_folder / state_files.TOPICS).rmdir()
    again.load()
    assert again.offsets.committed("G", "T", 0) == 7


async def test_offsets_are_saved_when_there_is_news_and_only_then(tmp_path: Path) -> None:
    settings = config("10.0.0.1", storePathRootDir=tmp_path)
    tables = Tables(settings, Runtime(), RealDisk())
    tables.offsets.commit("G", "T", 0, 7)
    tables.save_offsets()
    assert len(asyncio.all_tasks()) == 2
    await tables.save()
    tables.save_offsets()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    tables.offsets.commit("G", "T", 0, 8)
    tables.save_offsets()
    assert len(asyncio.all_tasks()) == 2
    await tables.save()
