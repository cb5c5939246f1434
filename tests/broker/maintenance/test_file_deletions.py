"""Files that wait for their deletion, on a drive that refuses some of them.

See docs/storage/retention.md.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.maintenance.file_deletions import PAUSE_S_MAX, FileDeletions
from roquet.storage.files.deletion import Deletion
from tests.broker.harness import ADDRESS
from tests.simulation.simulation import Simulation

LOG: Final = Path("/store/commitlog")
QUEUE: Final = Path("/store/consumequeue/T/0")
RETRY_S: Final = 10.0
TAKES_S: Final = 0.05
"""More than the threads of a simulated host let pass for a deletion."""


class Files:
    """Files on a host's drive, and what deletes them."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.host = sim.host(ADDRESS)
        self.host.boot()
        self.deletions = FileDeletions(self.host.runtime(), RETRY_S)

    def add(self, folder: Path, *names: str, pause_s: float = 0.0) -> None:
        for name in names:
            self.host.disk.open(folder / name, 16).close()
            self.deletions.add(folder, Deletion(self.host.disk, folder / name, None), pause_s)

    def run(self) -> None:
        self.host.call(self.deletions.run)

    @property
    def left(self) -> list[str]:
        return sorted(path.name for path in self.host.drive.names.files)

    def refuse(self, path: Path) -> None:
        self.host.drive.undeletable[path] = 0

    def tries(self, path: Path) -> int:
        return self.host.drive.undeletable[path]

    def accept(self, path: Path) -> None:
        del self.host.drive.undeletable[path]


@pytest.fixture
def files(sim: Simulation) -> Files:
    return Files(sim)


def test_all_files_of_all_sequences_go(files: Files) -> None:
    files.add(LOG, "a", "b")
    files.add(QUEUE, "c")
    assert len(files.deletions) == 3
    files.run()
    assert (len(files.deletions), files.left) == (0, [])


def test_an_empty_queue_has_nothing_to_do(files: Files) -> None:
    files.run()
    assert len(files.deletions) == 0


def test_a_file_that_cannot_be_deleted_holds_up_its_own_sequence_only(files: Files) -> None:
    files.add(LOG, "a", "b", "c")
    files.add(QUEUE, "d")
    files.refuse(LOG / "b")
    files.run()
    assert (len(files.deletions), files.left) == (2, ["b", "c"])
    files.add(QUEUE, "e")
    files.run()
    assert files.left == ["b", "c"]


def test_the_pause_before_a_retry_doubles_up_to_ten_minutes(files: Files) -> None:
    files.add(LOG, "a")
    files.refuse(LOG / "a")
    pauses_s: list[float] = []
    while len(pauses_s) < 9:
        tries = files.tries(LOG / "a")
        began_s = files.sim.now_s
        while files.tries(LOG / "a") == tries:
            files.run()
            files.sim.run_for(1)
        pauses_s.append(files.sim.now_s - began_s)
    assert pauses_s[1:] == pytest.approx([10, 20, 40, 80, 160, 320, 600, 600], abs=2)
    assert PAUSE_S_MAX == 600


def test_after_a_success_the_first_pause_is_short_again(files: Files) -> None:
    files.add(LOG, "a", "b")
    files.refuse(LOG / "a")
    for _ in range(3):
        files.run()
        files.sim.run_for(100)
    files.accept(LOG / "a")
    files.refuse(LOG / "b")
    files.run()
    assert (files.left, files.tries(LOG / "b")) == (["b"], 1)
    files.sim.run_for(RETRY_S - 1)
    files.run()
    assert files.tries(LOG / "b") == 1
    files.sim.run_for(1)
    files.run()
    assert files.tries(LOG / "b") == 2


def test_a_pause_after_each_deletion_leaves_the_drive_to_others(files: Files) -> None:
    files.add(LOG, "a", "b", "c", pause_s=0.5)
    began_s = files.sim.now_s
    files.run()
    assert 1.5 <= files.sim.now_s - began_s < 1.5 + 3 * TAKES_S


def test_a_sequence_keeps_the_pause_that_it_began_with_until_it_is_empty(files: Files) -> None:
    files.add(LOG, "a", pause_s=0.0)
    files.add(LOG, "b", pause_s=5.0)
    began_s = files.sim.now_s
    files.run()
    assert files.sim.now_s - began_s < 2 * TAKES_S
    files.add(LOG, "c", pause_s=5.0)
    files.run()
    assert files.sim.now_s - began_s >= 5.0


def test_files_that_are_added_meanwhile_go_in_the_same_pass(files: Files) -> None:
    files.add(LOG, "a", "b", pause_s=1.0)
    deleting = files.host.start(files.deletions.run)
    files.sim.run_for(0.5)
    files.add(LOG, "c")
    files.sim.run_for(5)
    assert (deleting.done(), files.left) == (True, [])


def test_failures_are_logged_when_they_begin_and_when_the_last_one_ends(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files.add(LOG, "a")
    files.add(QUEUE, "b")
    files.refuse(LOG / "a")
    files.refuse(QUEUE / "b")
    for _ in range(3):
        files.run()
        files.sim.run_for(100)
    (line,) = caplog.messages
    assert line.startswith("expired file cannot be deleted")
    assert f"path={LOG / 'a'} " in line
    files.accept(LOG / "a")
    files.run()
    assert len(caplog.messages) == 1, "the other one fails on"
    files.accept(QUEUE / "b")
    files.sim.run_for(PAUSE_S_MAX)
    files.run()
    assert caplog.messages[1:] == ["expired files can be deleted again"]


def test_a_file_that_is_gone_already_counts_as_deleted(files: Files) -> None:
    files.add(LOG, "a", "b")
    files.host.disk.delete(LOG / "a")
    files.run()
    assert (len(files.deletions), files.left) == (0, [])
