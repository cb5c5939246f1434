"""What a store's files say of the state that it is in."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from roquet.errors import StoreError
from roquet.protocol.records.message import NOT_SENDABLE
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.files.disk import RealDisk
from roquet.storetool.state import (
    State,
    disk_used,
    is_locked,
    kept_topics,
    mark_of_this_log,
    read_state,
    recovery_start,
)
from tests.storetool.stores import LOG_FILE, START_MS, Broker, files_of, filled, flip

NO_CHECKPOINT: Final = Checkpoint(RealDisk(), Path("none"))


def checkpoint_of(root: Path) -> Checkpoint:
    return read_state(root).checkpoint


def test_a_stopped_store_is_not_crashed(tmp_path: Path) -> None:
    filled(tmp_path, 3)

    state = read_state(tmp_path)

    assert (state.is_locked, state.has_abort, state.is_crashed) == (False, False, False)
    assert state.checkpoint.log_ms == START_MS + 3


def test_a_running_store_is_locked_and_a_killed_one_crashed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    running = read_state(tmp_path)
    broker.die()
    killed = read_state(tmp_path)

    assert (running.is_locked, running.has_abort, running.is_crashed) == (True, True, False)
    assert (killed.is_locked, killed.has_abort, killed.is_crashed) == (False, True, True)


def test_a_store_of_which_nobody_knows_whether_it_is_locked_counts_as_crashed() -> None:
    assert State(None, True, NO_CHECKPOINT).is_crashed
    assert not State(None, False, NO_CHECKPOINT).is_crashed


def test_a_checkpoint_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()

    with pytest.raises(StoreError, match=r"checkpoint cannot be read: Is a directory"):
        read_state(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="the lock is not tested there")
def test_another_process_s_lock_is_seen_and_left_alone(tmp_path: Path) -> None:
    script = (
        "import sys; from roquet.storage.files.disk import RealDisk; from pathlib import Path\n"
    )
    script += (
        "lock = RealDisk().lock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "lock"

    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert is_locked(path) is True
        assert is_locked(path) is True
        assert holder.stdin is not None
        holder.stdin.close()
    assert is_locked(path) is False


def test_the_own_process_s_lock_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = RealDisk().lock(path)

    assert is_locked(path) is True
    lock.release()
    assert is_locked(path) is False


def test_a_store_without_a_lock_file_is_not_locked(tmp_path: Path) -> None:
    assert is_locked(tmp_path / "lock") is False
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_cannot_be_opened_says_nothing(tmp_path: Path) -> None:
    assert is_locked(tmp_path / ("x" * 300)) is None


# where recovery begins


def test_a_mark_fits_the_log_that_it_was_made_of(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    checkpoint = checkpoint_of(tmp_path)
    mark = checkpoint.mark
    assert mark is not None

    assert mark_of_this_log(files_of(tmp_path), checkpoint) == mark
    assert recovery_start(files_of(tmp_path), checkpoint) == mark.position


@pytest.mark.parametrize("field", ["position", "last_ms", "last_at"])
def test_a_mark_of_another_record_does_not_fit(tmp_path: Path, field: str) -> None:
    filled(tmp_path, 10)
    checkpoint = checkpoint_of(tmp_path)
    assert checkpoint.mark is not None
    checkpoint.mark = replace(checkpoint.mark, **{field: getattr(checkpoint.mark, field) + 1})

    assert mark_of_this_log(files_of(tmp_path), checkpoint) is None


def test_a_mark_does_not_fit_a_log_whose_record_is_damaged(tmp_path: Path) -> None:
    places = filled(tmp_path, 10)
    checkpoint = checkpoint_of(tmp_path)
    flip(tmp_path / "commitlog" / f"{0:020d}", places[-1] + 5)

    assert mark_of_this_log(files_of(tmp_path), checkpoint) is None


def without_mark(root: Path, safe_ms: int) -> Checkpoint:
    """A checkpoint by which records before `safe_ms` are durable."""
    checkpoint = Checkpoint(RealDisk(), root / "none")
    checkpoint.log_ms = checkpoint.queues_ms = checkpoint.index_ms = safe_ms + 3000
    return checkpoint


def test_without_a_mark_recovery_begins_with_the_newest_file_of_durable_records(
    tmp_path: Path,
) -> None:
    places = filled(tmp_path, 97)
    files = files_of(tmp_path)
    first_of_second = START_MS + 1 + next(n for n, at in enumerate(places) if at >= LOG_FILE)

    def start(safe_ms: int) -> int:
        return recovery_start(files, without_mark(tmp_path, safe_ms))

    assert start(START_MS + 97) == files.log.files[-1].start > LOG_FILE
    assert start(first_of_second) == LOG_FILE
    assert start(first_of_second - 1) == 0
    assert start(0) == 0


def test_a_file_that_begins_with_no_record_is_no_place_to_begin(tmp_path: Path) -> None:
    filled(tmp_path, 97)
    files = files_of(tmp_path)
    newest = files.log.files[-1]
    flip(newest.path, 5)

    start = recovery_start(files, without_mark(tmp_path, START_MS + 97))

    assert start == newest.start - LOG_FILE


def test_a_log_whose_oldest_files_are_deleted_is_read_from_its_start(tmp_path: Path) -> None:
    filled(tmp_path, 97)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()

    assert recovery_start(files_of(tmp_path), without_mark(tmp_path, 0)) == LOG_FILE


# topics


def topics_file(root: Path, text: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(text, "utf-8")


def test_topics_are_kept_that_the_table_has_and_the_broker_s_own(tmp_path: Path) -> None:
    topics_file(tmp_path, '{"dataVersion":{},"topicConfigTable":{"T":{},"thème":{}}}')

    assert kept_topics(tmp_path) == frozenset({"T", "thème"}) | NOT_SENDABLE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[]",
        "5",
        "null",
        '{"topicConfigTable":null}',
        '{"topicConfigTable":7}',
        '{"topicConfigTable":"TopicTest"}',
        '{"topicConfigTable":["T"]}',
    ],
)
def test_a_table_that_cannot_be_read_says_nothing_of_topics(tmp_path: Path, text: str) -> None:
    assert kept_topics(tmp_path) is None
    topics_file(tmp_path, text)

    assert kept_topics(tmp_path) is None


# room


def test_holes_take_no_room(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "full").write_bytes(b"x" * 70_000)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)

    assert 70_000 <= disk_used({tmp_path}) < 1 << 20
    assert disk_used({tmp_path / "a", tmp_path / "none"}) >= 70_000
    assert disk_used(set()) == 0


def test_a_link_to_nothing_takes_no_room(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "none")

    assert disk_used({tmp_path}) == 0
