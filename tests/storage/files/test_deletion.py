"""The deletion of a file: it is closed once, and deleted for good."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from roquet.storage.files.deletion import Deletion
from tests.simulation.disk import Drive, MountedDisk

PATH = Path("/s/file")


@pytest.fixture
def drive() -> Drive:
    """With a file; a second close of it is a fault."""
    return Drive(random.Random(1))


@pytest.fixture
def disk(drive: Drive) -> MountedDisk:
    return drive.mount()


def test_an_open_file_is_closed_and_deleted_for_good(drive: Drive, disk: MountedDisk) -> None:
    file = disk.open(PATH, 10)
    file.sync(0, 10)
    disk.sync_names(PATH)
    deletion = Deletion(disk, PATH, file)
    assert (deletion.path, deletion.is_there, len(disk.descriptors)) == (PATH, True, 1)
    deletion()
    assert (deletion.is_there, len(disk.descriptors)) == (False, 0)
    drive.crash()
    assert PATH not in drive.names.files


def test_a_deletion_that_fails_can_be_tried_again_and_closes_the_file_once(
    drive: Drive, disk: MountedDisk
) -> None:
    deletion = Deletion(disk, PATH, disk.open(PATH, 10))
    drive.undeletable[PATH] = 0
    for _ in range(3):
        with pytest.raises(OSError, match="not permitted"):
            deletion()
        disk.open(PATH.with_name("other"), 10)  # takes the descriptor that has become free
    assert (drive.undeletable[PATH], deletion.is_there) == (3, True)
    drive.undeletable.clear()
    deletion()
    assert (deletion.is_there, len(disk.descriptors)) == (False, 3)


def test_a_file_that_nobody_has_open_or_that_is_gone_already_can_be_deleted(
    disk: MountedDisk,
) -> None:
    disk.replace(PATH, b"data")
    for _ in range(2):
        Deletion(disk, PATH, None)()
    assert not Deletion(disk, PATH, None).is_there


def test_a_deletion_that_may_not_be_durable_has_taken_the_file(
    drive: Drive, disk: MountedDisk
) -> None:
    deletion = Deletion(disk, PATH, disk.open(PATH, 10))
    drive.refuse("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        deletion()
    assert not deletion.is_there
    deletion()


def test_a_file_in_a_folder_that_cannot_be_read_counts_as_there(
    drive: Drive, disk: MountedDisk
) -> None:
    deletion = Deletion(disk, PATH, None)
    drive.refuse("read", errno.EIO)
    assert deletion.is_there
    assert not deletion.is_there
