"""Stores that are as they should be: nothing is found, and nothing is touched."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from roquet.common.steps import finished
from roquet.protocol.records import message as m
from roquet.storage.store import Store
from roquet.storetool.check.check import check
from roquet.storetool.check.index import IndexCheck
from roquet.storetool.read import log_scanner
from roquet.storetool.read.index_files import Shape
from tests.storage.deletions import delete_topic
from tests.storetool.stores import (
    LOG_FILE,
    QUEUE_FILE,
    SHAPE,
    V6,
    Broker,
    assert_sound,
    checked,
    files_of,
    filled,
    overwrite,
    snapshot,
)

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "store"


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_a_store_of_many_files_is_sound(tmp_path: Path) -> None:
    places = filled(tmp_path, 100)

    result = checked(tmp_path)

    assert_sound(result)
    assert result.findings.remarks == []
    assert (result.records, result.entries, result.keys) == (100, 100, 200)
    assert result.log_start == 0
    assert places[-1] < result.log_end < places[-1] + 200
    assert result.index_files > 2


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    Broker(tmp_path).stop()

    assert_sound(checked(tmp_path))


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_a_store_of_apache_s_broker_is_sound(name: str) -> None:
    result = checked(GOLDEN / name, shape=Shape(20, 60))

    assert_sound(result)
    assert result.records == {"clean": 44, "crashed": 46}[name]
    assert result.keys > result.records


def test_records_of_all_sorts_are_sound(broker: Broker, tmp_path: Path) -> None:
    broker.put(b"", TAGS="中文", KEYS="grüße two  words", UNIQ_KEY="u1")
    broker.put(b"six", born_host=V6, TAGS="t")
    broker.put(b"half", sys_flag=m.TRANSACTION_PREPARED, UNIQ_KEY="u2")
    broker.put(b"plain")
    broker.put(b"empty value", KEYS="", TAGS="")
    broker.put(bytes(3000), KEYS="large")
    broker.put(b"twice", UNIQ_KEY="same", KEYS="same same")
    for number in range(20):
        broker.put(
            b"%d" % number,
            queue_id=3,
            KEYS=f"a{number % 3} b{'c' * (number % 2)}",
            UNIQ_KEY=f"{number:04d}",
        )
    broker.delayed(1)
    broker.delayed(2)
    broker.stop()

    result = checked(tmp_path)

    assert_sound(result)
    assert result.records == 29


def test_a_store_with_notes_on_its_entries_is_sound(tmp_path: Path) -> None:
    filled(tmp_path, 60, ext_file_size=240)

    assert_sound(checked(tmp_path))


def test_a_store_without_an_index_is_sound(tmp_path: Path) -> None:
    filled(tmp_path, index_enabled=False)

    assert_sound(checked(tmp_path))


def test_a_log_in_several_folders_is_sound(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    filled(tmp_path / "s", 60, commit_log_folders=logs)
    assert all(list(folder.iterdir()) for folder in logs)

    result = checked(tmp_path / "s", logs)

    assert_sound(result)
    assert result.records == 60


@pytest.mark.parametrize("index_entries", [40, 400])
def test_a_store_whose_oldest_files_expired_is_sound(tmp_path: Path, index_entries: int) -> None:
    broker = Broker(tmp_path, index_entries=index_entries)
    broker.fill(100)
    broker.store.make_checkpoint()
    broker.store.log.synced(broker.store.log.end)
    expired = finished(broker.store.old_files.forget_oldest(2))
    for delete in [*expired.log, *expired.queues, *expired.index]:
        delete()
    broker.stop()

    result = checked(tmp_path, shape=Shape(SHAPE.slots, index_entries))

    assert_sound(result)
    assert result.log_start == 2 * LOG_FILE


def test_a_slave_that_joined_late_is_sound(tmp_path: Path) -> None:
    filled(tmp_path / "master", 100)
    late = Broker(tmp_path / "slave")
    for path in sorted((tmp_path / "master" / "commitlog").iterdir())[2:]:
        late.store.log.replicate(int(path.name), path.read_bytes())
    late.store.replicated()
    late.die()

    assert_sound(checked(tmp_path / "slave"))


def test_a_topic_that_was_deleted_and_made_again_is_sound(broker: Broker, tmp_path: Path) -> None:
    broker.fill(30)
    delete_topic(broker.store, "T")
    broker.fill(5)
    broker.stop()

    assert_sound(checked(tmp_path))


def test_records_of_a_deleted_topic_are_only_a_remark(broker: Broker, tmp_path: Path) -> None:
    broker.fill(10, "gone")
    broker.fill(10, "kept")
    delete_topic(broker.store, "gone")
    broker.stop()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"kept": {}}}))

    result = checked(tmp_path)

    assert_sound(result)
    assert result.findings.remarks == [
        f"gone {queue}: its records are of a deleted topic" for queue in (0, 1)
    ]


def test_a_killed_broker_s_store_is_sound(broker: Broker, tmp_path: Path) -> None:
    broker.fill(50)
    broker.die()

    assert_sound(checked(tmp_path))


def test_a_torn_tail_after_a_crash_is_only_a_remark(broker: Broker, tmp_path: Path) -> None:
    places = broker.fill(50)
    broker.die()
    path = tmp_path / "commitlog" / f"{places[-1] // LOG_FILE * LOG_FILE:020d}"
    data = path.read_bytes()
    index = places[-1] % LOG_FILE
    path.write_bytes(data[: index + 60].ljust(LOG_FILE, b"\0"))

    result = checked(tmp_path)

    assert [each.text for each in result.findings.kept] == []
    assert result.log_end == places[-1]
    assert any(f"the log ends at {places[-1]}" in remark for remark in result.findings.remarks)


def test_keys_that_are_not_written_yet_are_only_a_remark(broker: Broker, tmp_path: Path) -> None:
    broker.fill(5)
    finished(broker.store.flush_index())
    broker.fill(5)

    result = checked(tmp_path)

    broker.stop()
    assert_sound(result)
    assert [remark for remark in result.findings.remarks if "still to be indexed" in remark]


class Growing:
    """Appends whenever the check goes on to the next piece of the log."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.turns = 0
        monkeypatch.setattr(log_scanner, "PIECE_SIZE", 2000)

    def grow(self, size: int) -> None:
        self.turns += 1
        if self.turns < 30:
            self.broker.fill(3)
            finished(self.broker.store.flush_index())


def test_a_store_that_grows_while_it_is_checked_is_sound(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.fill(80)
    growing = Growing(broker, monkeypatch)

    result = check(files_of(tmp_path), SHAPE, growing.grow)

    broker.stop()
    assert_sound(result)
    assert [remark for remark in result.findings.remarks if "indexed" not in remark] == []
    assert growing.turns > 5


def test_keys_that_are_written_while_the_index_is_looked_at_are_not_missing(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.fill(5)
    finished(broker.store.flush_index())
    broker.fill(5)
    window = IndexCheck._window

    def window_and_flush(self: IndexCheck, count: int) -> Any:
        found = window(self, count)
        finished(broker.store.flush_index())
        return found

    monkeypatch.setattr(IndexCheck, "_window", window_and_flush)

    result = checked(tmp_path)

    broker.stop()
    assert_sound(result)


def test_records_that_wait_in_a_running_broker_s_memory_are_only_a_remark(tmp_path: Path) -> None:
    broker = Broker(tmp_path, pooled=True)
    broker.fill(5)
    broker.store.log.commit()
    broker.fill(5)

    result = checked(tmp_path)

    broker.stop()
    assert_sound(result)
    assert result.records == 5


def test_beside_a_running_broker_the_log_is_read_up_to_what_is_dispatched(
    broker: Broker, tmp_path: Path
) -> None:
    broker.fill(40)
    finished(broker.store.flush_index())
    end = broker.store.log.end
    overwrite(
        tmp_path / "commitlog" / f"{end // LOG_FILE * LOG_FILE:020d}",
        end % LOG_FILE,
        b"half a record",
    )

    result = checked(tmp_path)

    assert_sound(result)
    assert (result.log_end, result.records, result.findings.remarks) == (end, 40, [])
    broker.die()


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_check_changes_nothing(tmp_path: Path, has_lock: bool) -> None:
    filled(tmp_path, 60)
    if not has_lock:
        os.unlink(tmp_path / "lock")
    before = snapshot(tmp_path)

    checked(tmp_path)

    assert snapshot(tmp_path) == before


def test_golden_stores_are_left_as_they_are(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "g")
    before = snapshot(tmp_path)

    for name in ("clean", "crashed"):
        checked(tmp_path / "g" / name, shape=Shape(20, 60))

    assert snapshot(tmp_path) == before


def test_a_recovered_store_is_sound_again(broker: Broker, tmp_path: Path) -> None:
    broker.fill(50)
    broker.die()
    again: Store = Broker(tmp_path).store
    again.close()

    assert_sound(checked(tmp_path))
    assert QUEUE_FILE % 20 == 0
