"""The manifest tells of every golden file, and of nothing else."""

from __future__ import annotations

from tests.golden.collection import MANIFEST, ROOT, read_manifest

SIZE_MAX = 1_200_000


def test_every_file_is_in_the_manifest_with_its_size() -> None:
    files = {
        str(file.relative_to(ROOT)): file.stat().st_size
        for file in ROOT.rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc") and file.name != MANIFEST
    }
    assert files == {entry.file: entry.size for entry in read_manifest()}


def test_every_entry_says_who_wrote_it_and_how() -> None:
    assert all(entry.what and entry.written_by and entry.command for entry in read_manifest())


def test_the_files_stay_small() -> None:
    assert sum(entry.size for entry in read_manifest()) < SIZE_MAX
