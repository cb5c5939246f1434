"""An archive's folder changes entirely or not at all, one change at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines._shared.location import is_url
from roquet.spark.pipelines.archive.folder import STATES, ArchiveFolder
from roquet.spark.pipelines.archive.state import ArchiveError, ArchiveState, StoredFile

QUEUE = MessageQueue("orders", "broker-a", 0)
DAY = "topic=orders/day=2026-11-21"


def written(path: Path, rows: int) -> None:
    """A Parquet file, as Spark writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"number": list(range(rows))}), path)


def staged(folder: ArchiveFolder, state: ArchiveState, *rows: int) -> Path:
    """The staged files of a change, one for each count of rows."""
    staging = folder.staging(state)
    for number, count in enumerate(rows):
        written(staging / DAY / f"part-{number}.parquet", count)
    return staging


def add(folder: ArchiveFolder, *rows: int) -> ArchiveState:
    """A change that adds files with so many rows."""
    with folder.changing() as state:
        staging = staged(folder, state, *rows)
        after = state.with_rows({QUEUE: state.rows + sum(rows)}, folder.staged_files(staging))
        folder.commit(after, staging)
    return after


def parquet_files(folder: ArchiveFolder) -> list[str]:
    """What a reader that knows nothing of states finds."""
    return sorted(
        path.relative_to(folder.path).as_posix() for path in folder.path.glob("topic=*/*/*.parquet")
    )


def test_a_committed_change_is_there_for_whoever_opens_the_archive(tmp_path: Path) -> None:
    added = add(ArchiveFolder(tmp_path), 3, 4)

    again = ArchiveFolder(str(tmp_path))
    assert again.state() == replace(added, staged=again.state().staged)
    assert (again.state().version, again.state().rows, again.state().progress) == (1, 7, {QUEUE: 7})
    assert parquet_files(again) == sorted(again.state().files)
    assert parquet_files(again) == [f"{DAY}/00000001-part-{number}.parquet" for number in (0, 1)]


def test_a_new_archive_has_nothing(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path / "new")

    assert folder.state() == ArchiveState()
    assert not folder.path.exists(), "to look changes nothing"
    with folder.changing() as state:
        assert state == ArchiveState()


def test_staged_files_are_told_with_their_rows_and_bytes(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    staging = staged(folder, ArchiveState(), 3, 0)
    written(staging / "_temporary" / "part-9.parquet", 5)
    (staging / DAY / "part-0.parquet.crc").touch()

    files = folder.staged_files(staging)

    paths = [staging / DAY / f"00000001-part-{number}.parquet" for number in (0, 1)]
    assert files == {
        path.relative_to(staging).as_posix(): StoredFile(rows, path.stat().st_size)
        for path, rows in zip(paths, (3, 0), strict=True)
    }
    assert folder.staged_files(staging) == files, "they are not renamed twice"


def test_each_change_has_a_staging_folder_of_its_own(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    names = {folder.staging(ArchiveState(version=11)).name for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("staged-00000012-") for name in names)


def test_a_change_without_a_state_leaves_nothing(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    before = add(folder, 3)
    with folder.changing() as state:
        staging = staged(folder, state, 4)
        folder.staged_files(staging)

    assert folder.state().files == before.files
    assert staging.exists(), "a reader deletes nothing"
    with folder.changing() as state:
        assert state.files == before.files
        assert not staging.exists()
    assert parquet_files(folder) == sorted(before.files)


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_change_with_a_state_is_completed_by_who_comes_next(tmp_path: Path, moved: int) -> None:
    """Its process died after it wrote the state and moved so many files."""
    folder = ArchiveFolder(tmp_path)
    old = add(folder, 3)
    staging = staged(folder, old, 1, 2)
    files = folder.staged_files(staging)
    state = replace(old.with_fewer_files(old.files, files), staged=staging.name)
    (tmp_path / STATES / "00000002.json").write_text(state.to_json(), encoding="utf-8")
    for name in sorted(files)[:moved]:
        (staging / name).rename(tmp_path / name)

    assert folder.state() == state

    assert parquet_files(folder) == sorted(files), "the old file is gone"
    assert not staging.exists()
    assert folder.state() == state, "and once more there is nothing to do"


def test_files_that_others_replace_are_deleted(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    add(folder, 1)
    add(folder, 2)
    with folder.changing() as state:
        staging = staged(folder, state, 3)
        after = state.with_fewer_files(state.files, folder.staged_files(staging))
        folder.commit(after, staging)

    assert parquet_files(folder) == [f"{DAY}/00000003-part-0.parquet"]
    assert folder.state().rows == 3


def test_the_two_newest_states_are_kept(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    for _ in range(4):
        add(folder, 1)

    assert sorted(os.listdir(tmp_path / STATES)) == ["00000003.json", "00000004.json", "lock"]


def test_an_archive_is_changed_by_one_at_a_time(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    with (
        folder.changing(),
        pytest.raises(ArchiveError, match="is being changed by another process: wait for it"),
        ArchiveFolder(tmp_path).changing(),
    ):
        pass
    with folder.changing() as state:
        assert state.version == 0, "the lock was released"


@pytest.mark.parametrize("others", [("notes.txt",), ("a", "b")])
def test_a_folder_with_other_things_is_no_archive(tmp_path: Path, others: Sequence[str]) -> None:
    for name in others:
        (tmp_path / name).touch()

    with (
        pytest.raises(ArchiveError, match=rf"is no archive and not empty \({others[0]}\)"),
        ArchiveFolder(tmp_path).changing(),
    ):
        pass


def test_a_damaged_state_is_told_by_its_file(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    add(folder, 1)
    (tmp_path / STATES / "00000001.json").write_text("{}", encoding="utf-8")

    with pytest.raises(ArchiveError, match=r"00000001\.json is no valid state of an archive"):
        folder.state()


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("s3://bucket/x", True), ("file:/x", True), ("/data/x", False), ("C:/x", False), ("x", False)],
)
def test_object_stores_are_no_folders(folder: str, expected: bool) -> None:
    assert is_url(folder) == expected
    if expected:
        with pytest.raises(ArchiveError, match="not a URL; only format delta may have a URL"):
            ArchiveFolder(folder)
    else:
        assert ArchiveFolder(folder).path.is_absolute()
