"""Files of a store that somebody deletes or replaces while they are in use: nothing counts as
durable in them.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.errors import UnreadableFile
from roquet.protocol.filters.tags import TagFilter
from roquet.storage.config import StoreConfig
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.mapped_file import GONE
from roquet.storage.store import Store
from tests.storage.records import append_one, bodies_in

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="nobody can delete a mapped file there"
)

LOG_FILE = 65_536
PER_FILE = 40


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root, [root / "commitlog"], LOG_FILE, 20 * PER_FILE, index_slots=100, index_entries=1000
    )


def opened(root: Path) -> Store:
    store = Store(config(root), lambda: 1_700_000_000_000)
    store.open()
    return store


def put(store: Store, topic: str, *numbers: int) -> None:
    for number in numbers:
        append_one(store, store.queue(topic, 0), b"%d" % number, b"KEYS\1k", [b"k"])
    store.end_turn()


def numbers(store: Store, topic: str) -> list[int]:
    return [int(body) for body in bodies_in(store, topic)]


def flush(store: Store) -> None:
    store.log.sync_work(store.log.end)()
    store.log.synced(store.log.end)


def replace_it(path: Path) -> None:
    """By a copy, as a restored backup does."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def move_it(path: Path) -> None:
    path.rename(path.parent.parent / "moved")


def keep_a_link_to_it(path: Path) -> None:
    """As backups do that cost nothing."""
    os.link(path, path.parent.parent / "link")
    path.unlink()


WAYS = pytest.mark.parametrize("lose", [Path.unlink, replace_it, move_it, keep_a_link_to_it])


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@WAYS
def test_a_sync_of_a_log_whose_file_is_gone_fails_and_is_the_last_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    store = opened(tmp_path)
    put(store, "T", 0)
    flush(store)
    path = next((tmp_path / "commitlog").iterdir())
    lose(path)
    put(store, "T", 1)
    with pytest.raises(UnreadableFile, match=GONE):
        flush(store)
    assert store.take_failure()
    assert str(path) in str(store.failure)
    with pytest.raises(OSError, match="no file of the store is synced any more"):
        put(store, "T", 2)
    assert store.fetch("T", 0, 0, 32, TagFilter()).count == 1, (
        "what cannot be durable any more is not shown"
    )
    (line,) = told(caplog)
    assert str(path) in line
    store.abandon()


@WAYS
def test_queues_whose_files_are_gone_are_made_anew_from_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    store = opened(tmp_path)
    for topic in "A", "B", "other":
        put(store, topic, *range(100))
    store.make_checkpoint()
    mark = store.checkpoint.mark
    for topic in "A", "B":
        lose(max((tmp_path / "consumequeue" / topic / "0").iterdir()))
        (tmp_path / "consumequeue" / topic / "moved").unlink(missing_ok=True)
    for topic in "A", "B", "other":
        put(store, topic, 100)
    with pytest.raises(UnreadableFile, match=GONE):
        store.make_checkpoint()
    assert store.checkpoint.mark == mark, "it would count entries that are on no drive"
    assert store.failure is None
    while store.rebuild_queues():
        pass
    for topic in "A", "B", "other":
        put(store, topic, 101)
    store.make_checkpoint()
    store.abandon()
    assert len([line for line in told(caplog) if line.startswith(GONE)]) == 2
    again = opened(tmp_path)
    assert [numbers(again, topic) for topic in ("A", "B", "other")] == [list(range(102))] * 3
    again.close()


def test_an_index_file_that_is_gone_holds_up_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path)
    put(store, "T", 0)
    finished(store.flush_index())
    next((tmp_path / "index").iterdir()).unlink()
    for number in 1, 2:
        put(store, "T", number)
        store.make_checkpoint()
    assert store.checkpoint.mark is not None
    assert store.checkpoint.mark.position == store.log.end
    assert len(told(caplog)) == 1
    store.close()


def test_a_file_of_the_log_that_is_written_no_more_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is open or not; it is read as long as it is open."""
    store = opened(tmp_path)
    put(store, "T", *range(3000))
    flush(store)
    first, second, *_ = sorted((tmp_path / "commitlog").iterdir())
    first.unlink()
    for _ in range(2):
        store.log.look_for_names()
    assert numbers(store, "T") == list(range(3000))
    (line,) = told(caplog)
    assert str(first) in line
    move_it(second)
    store.log.look_for_names()
    assert str(second) in told(caplog)[-1]
    (tmp_path / "moved").rename(second)
    store.close()
    caplog.clear()
    store = opened(tmp_path)
    second.unlink()
    for _ in range(2):
        store.log.look_for_names()
    (line,) = told(caplog)
    assert str(second) in line
    store.abandon()


def test_a_file_that_the_store_itself_deletes_while_it_is_synced_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention does, and the end of a topic: whoever deletes a file discards it first."""
    path = tmp_path / "file"
    file = RealDisk().open(path, 4096)

    def delete(number: int) -> None:
        file.discard()
        path.unlink()

    monkeypatch.setattr(os, "fdatasync", delete)
    monkeypatch.setattr(os, "fsync", delete)
    for _ in range(2):
        file.sync(0, 4096)
    assert not path.exists()
    assert not told(caplog)
