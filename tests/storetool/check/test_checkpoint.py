"""What a checkpoint says, and is not so, is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import pack

from roquet.storage.checkpoint import Checkpoint
from roquet.storage.files.disk import RealDisk
from roquet.storetool.check.findings import FindingKind
from tests.storetool.stores import (
    filled,
    flip,
    found,
    overwrite,
    text_of,
)


def changed(root: Path, change: Callable[[Checkpoint], None]) -> None:
    checkpoint = Checkpoint(RealDisk(), root / "checkpoint")
    checkpoint.load()
    change(checkpoint)
    checkpoint.save()


def test_a_checkpoint_from_the_future(tmp_path: Path, places: list[int]) -> None:
    path = tmp_path / "checkpoint"
    overwrite(path, 8, pack(">q", 1_999_999_999_999))

    assert found(tmp_path) == [(FindingKind.CHECKPOINT, "checkpoint", 8)]
    assert "says 1999999999999 ms for the queues" in text_of(tmp_path)


def test_a_mark_without_its_checksum(tmp_path: Path, places: list[int]) -> None:
    flip(tmp_path / "checkpoint", 70)

    assert found(tmp_path) == [(FindingKind.CHECKPOINT, "checkpoint", 64)]


def test_a_mark_of_another_log(tmp_path: Path, places: list[int]) -> None:
    filled(tmp_path / "other", 20)
    (tmp_path / "checkpoint").write_bytes((tmp_path / "other" / "checkpoint").read_bytes())
    shutil.rmtree(tmp_path / "other")
    data = bytearray((tmp_path / "checkpoint").read_bytes())
    changed(
        tmp_path,
        lambda checkpoint: setattr(
            checkpoint,
            "mark",
            type(checkpoint.mark)(*(5, 4, 3, 0, 0, 0, 0)),  # type: ignore[misc]
        ),
    )

    assert found(tmp_path) == [(FindingKind.CHECKPOINT, "checkpoint", 64)]
    assert data != (tmp_path / "checkpoint").read_bytes()


def test_a_mark_that_counts_more_queues_than_there_are(tmp_path: Path, places: list[int]) -> None:
    def counts(checkpoint: Checkpoint) -> None:
        assert checkpoint.mark is not None
        checkpoint.mark = replace(checkpoint.mark, queue_count=3)

    changed(tmp_path, counts)

    assert found(tmp_path) == [(FindingKind.CHECKPOINT, "checkpoint", 64)]
    assert "3 queues had entries then, 2 have entries now" in text_of(tmp_path)


def test_a_mark_that_counts_more_index_entries_than_there_are(
    tmp_path: Path, places: list[int]
) -> None:
    def counts(checkpoint: Checkpoint) -> None:
        assert checkpoint.mark is not None
        checkpoint.mark = replace(checkpoint.mark, index_count=40)

    changed(tmp_path, counts)

    assert found(tmp_path) == [(FindingKind.CHECKPOINT, "checkpoint", 64)]
    assert "entries, it had 40" in text_of(tmp_path)


def test_a_mark_whose_last_record_is_deleted_says_nothing_of_it(
    tmp_path: Path, places: list[int]
) -> None:
    def is_old(checkpoint: Checkpoint) -> None:
        assert checkpoint.mark is not None
        checkpoint.mark = replace(checkpoint.mark, last_at=places[0], last_ms=5)

    changed(tmp_path, is_old)
    assert "is a different one now" in text_of(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()

    assert all(kind is not FindingKind.CHECKPOINT for kind, _, _ in found(tmp_path))
