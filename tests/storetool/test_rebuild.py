"""Queues and index made anew from the log are those that the broker had made."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from roquet.errors import StoreError
from roquet.protocol.records.block import RecordBlock
from roquet.storetool import rebuild as module
from roquet.storetool.read.index_files import Shape
from roquet.storetool.rebuild import Rebuilt, rebuild
from tests.storage.deletions import delete_topic
from tests.storage.records import found_by_key
from tests.storetool.stores import (
    LOG_FILE,
    PLAN,
    Broker,
    assert_refused,
    assert_sound,
    checked,
    entries,
    file_of,
    files_of,
    filled,
    flip,
    forget,
    snapshot,
)

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "store"


def index_content(root: Path) -> list[bytes]:
    return [*entries(root, "index").values()]


def test_queues_are_equal_entry_by_entry(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(60)
    broker.delayed(2)
    broker.fill(3, "U")
    broker.stop()
    before, index = entries(tmp_path, "consumequeue"), index_content(tmp_path)
    forget(tmp_path, "consumequeue", "index")

    assert rebuild(files_of(tmp_path), PLAN) == Rebuilt(64, 0)

    assert entries(tmp_path, "consumequeue") == before
    assert [len(data) for data in index_content(tmp_path)] == [len(data) for data in index]
    assert_sound(checked(tmp_path))
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_queues_of_apache_s_broker_are_equal_entry_by_entry(tmp_path: Path, name: str) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / "s")
    root = tmp_path / "s"
    before = entries(root, "consumequeue")
    levels = tuple(seconds * 1000 for seconds in (1, 5, 10, 30))
    plan = replace(PLAN, queue_file_size=2000, shape=Shape(20, 60), delay_levels_ms=levels)
    forget(root, "consumequeue", "index")

    rebuild(files_of(root), plan)

    assert entries(root, "consumequeue") == before
    assert_sound(checked(root, shape=Shape(20, 60)))
    assert (root / "abort").exists() is (name == "crashed")


def test_a_broker_goes_on_with_a_rebuilt_store(tmp_path: Path) -> None:
    filled(tmp_path, 60)
    forget(tmp_path, "consumequeue", "index")
    rebuild(files_of(tmp_path), PLAN)

    broker = Broker(tmp_path)
    broker.fill(10)
    assert broker.store.max_offset("T", 0) == 35
    assert len(found_by_key(broker.store, "T", "T-00000041", 10, 0, 1 << 60).records) == 1
    broker.die()

    Broker(tmp_path).stop()
    assert_sound(checked(tmp_path))


def test_a_late_slave_s_queues_keep_their_offsets(tmp_path: Path) -> None:
    filled(tmp_path / "master", 100)
    late = Broker(tmp_path / "slave")
    for path in sorted((tmp_path / "master" / "commitlog").iterdir())[2:]:
        late.store.log.replicate(int(path.name), path.read_bytes())
    late.store.replicated()
    late.stop()
    before = entries(tmp_path / "slave", "consumequeue")
    forget(tmp_path / "slave", "consumequeue")

    rebuild(files_of(tmp_path / "slave"), PLAN)

    assert entries(tmp_path / "slave", "consumequeue") == before


def test_only_the_queues_or_only_the_index(tmp_path: Path) -> None:
    filled(tmp_path, 60)
    before = snapshot(tmp_path)

    rebuild(files_of(tmp_path), replace(PLAN, index=False))
    after = snapshot(tmp_path)
    assert {
        name for name in before if name.startswith("index/") and before[name] != after[name]
    } == set()
    assert_sound(checked(tmp_path))

    rebuild(files_of(tmp_path), replace(PLAN, queues=False))
    last = snapshot(tmp_path)
    assert {
        name for name in after if name.startswith("consumequeue/") and after[name] != last[name]
    } == set()
    assert_sound(checked(tmp_path))


def test_notes_are_made_anew_too(tmp_path: Path) -> None:
    filled(tmp_path, 20, ext_file_size=240)
    before = entries(tmp_path, "consumequeue_ext")

    rebuild(files_of(tmp_path), replace(PLAN, ext_file_size=module.ext_file_size(tmp_path)))

    assert entries(tmp_path, "consumequeue_ext") == before
    assert_sound(checked(tmp_path))


def test_a_topic_that_was_made_again_gets_its_new_messages_only(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(30)
    broker.fill(4, "gone")
    delete_topic(broker.store, "T")
    delete_topic(broker.store, "gone")
    broker.fill(5)
    broker.stop()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": {}}}))
    before = entries(tmp_path, "consumequeue")

    rebuild(files_of(tmp_path), PLAN)

    assert entries(tmp_path, "consumequeue") == before


def test_a_crash_in_the_middle_leaves_what_a_broker_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 60)
    before = entries(tmp_path, "consumequeue")
    put = module._Rebuild._put

    def stop_there(self: module._Rebuild, block: RecordBlock) -> None:
        if block.at >= LOG_FILE:
            raise KeyboardInterrupt
        put(self, block)

    monkeypatch.setattr(module._Rebuild, "_put", stop_there)
    with pytest.raises(KeyboardInterrupt):
        rebuild(files_of(tmp_path), PLAN)
    assert (tmp_path / "abort").exists()

    Broker(tmp_path).stop()

    assert entries(tmp_path, "consumequeue") == before
    assert_sound(checked(tmp_path))


def test_a_damaged_log_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    places = filled(tmp_path, 60)
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 5)

    assert_refused(tmp_path, f"damaged from physical offset {places[9]}")


def test_a_gap_in_a_queue_is_refused(tmp_path: Path) -> None:
    places = filled(tmp_path, 60)
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 27, 0x40)

    with pytest.raises(StoreError, match="T 1 goes from queue offset 3 to 68"):
        rebuild(files_of(tmp_path), PLAN)


def test_a_log_without_one_of_its_files_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 90)
    (tmp_path / "commitlog" / f"{LOG_FILE:020d}").unlink()

    with pytest.raises(StoreError, match=f"{LOG_FILE:020d} is missing"):
        rebuild(files_of(tmp_path), PLAN)


def test_a_store_without_records_is_rebuilt_as_one(tmp_path: Path) -> None:
    Broker(tmp_path).stop()

    assert rebuild(files_of(tmp_path), PLAN) == Rebuilt(0, 0)

    assert_sound(checked(tmp_path))


def test_a_log_whose_first_file_was_being_created_is_rebuilt_as_one_without_records(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    (tmp_path / "commitlog" / f"{LOG_FILE:020d}").touch()

    assert rebuild(files_of(tmp_path), PLAN) == Rebuilt(0, 0)

    assert files_of(tmp_path).queues == {}
