"""Where a log ends for those who may not repair it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from roquet.spark._storefiles.log_end import log_end
from roquet.spark._storefiles.read import CorruptStore
from tests.spark.store_rows import COUNT, bodies, messages, planned
from tests.storetool.stores import (
    LOG_FILE,
    Broker,
    file_of,
    files_of,
    flip,
    overwrite,
)


def test_the_zeros_behind_a_log_are_its_end(tmp_path: Path, places: list[int]) -> None:
    (last,) = planned(tmp_path)

    assert places[-1] < last.end < places[-1] + 200
    assert last.damages == ()


def torn(root: Path, places: list[int], kept: int = 50) -> None:
    """The store of a broker that was killed while it wrote its last record, of which the beginning
    is there.
    """
    (root / "abort").touch()
    name, index = file_of(root, places[-1])
    data = (root / name).read_bytes()
    overwrite(root / name, index + kept, bytes(len(data) - index - kept))


@pytest.mark.parametrize("has_queues", [True, False])
def test_a_half_written_last_record_is_a_damage(
    tmp_path: Path, places: list[int], has_queues: bool, caplog: pytest.LogCaptureFixture
) -> None:
    torn(tmp_path, places)
    if not has_queues:
        shutil.rmtree(tmp_path / "consumequeue")

    with pytest.raises(CorruptStore, match="mode=PERMISSIVE reads the rest"):
        bodies(tmp_path)
    assert bodies(tmp_path, mode="PERMISSIVE") == messages()[:-1]

    name, index = file_of(tmp_path, places[-1])
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{tmp_path / name}, bytes {index} to " in line.getMessage()


def test_what_is_left_over_behind_a_log_that_was_closed_is_no_damage(
    tmp_path: Path, places: list[int]
) -> None:
    name, index = file_of(tmp_path, places[-1])
    overwrite(tmp_path / name, index + 400, b"older bytes that a recovery cut off")

    assert bodies(tmp_path) == messages()


def test_messages_that_queues_have_and_the_log_has_not_are_a_damage(
    tmp_path: Path, places: list[int]
) -> None:
    name, index = file_of(tmp_path, places[-3])
    overwrite(tmp_path / name, index, bytes(LOG_FILE - index))

    with pytest.raises(CorruptStore, match="the queues have messages up to physical offset"):
        bodies(tmp_path)
    assert bodies(tmp_path, mode="permissive") == messages()[:-3]


def test_a_copy_whose_last_file_is_as_long_as_its_messages_is_whole(
    tmp_path: Path, places: list[int]
) -> None:
    (part,) = planned(tmp_path)
    last = sorted((tmp_path / "commitlog").iterdir())[part.end // LOG_FILE]
    last.write_bytes(last.read_bytes()[: part.end % LOG_FILE])
    for later in sorted((tmp_path / "commitlog").iterdir()):
        if later > last:
            later.unlink()

    assert bodies(tmp_path) == messages()


def end_of(root: Path) -> tuple[int, str | None]:
    """Where the log ends, and what is wrong behind it."""
    end, damage = log_end(files_of(root))
    assert damage is None or damage.start == end < damage.end
    return end, None if damage is None else damage.reason


def test_the_log_of_a_running_broker_ends_with_what_its_queues_have(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    places = broker.fill(COUNT)
    log = files_of(tmp_path).log
    try:
        whole, _ = end_of(tmp_path)
        (tmp_path / "consumequeue/T/1").rename(tmp_path / "other")
        without_the_last, wrong = end_of(tmp_path)
    finally:
        (tmp_path / "other").rename(tmp_path / "consumequeue/T/1")
        broker.stop()

    assert log.start == places[0] < places[-1] < whole
    assert (without_the_last, wrong) == (places[-1], None)
    assert end_of(tmp_path) == (whole, None)


def test_the_log_of_a_broker_that_died_is_read_beyond_its_queues(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    places = broker.fill(COUNT)
    broker.die()
    shutil.rmtree(tmp_path / "consumequeue/T/1")
    (tmp_path / "abort").touch()

    end, wrong = end_of(tmp_path)

    assert places[-1] < end
    assert wrong is None


@pytest.mark.parametrize("is_crashed", [True, False])
def test_other_bytes_behind_the_last_record_are_damage_after_a_crash(
    tmp_path: Path, places: list[int], is_crashed: bool
) -> None:
    end, _ = end_of(tmp_path)
    name, index = file_of(tmp_path, end)
    overwrite(tmp_path / name, index + 10, b"garbage")
    if is_crashed:
        (tmp_path / "abort").touch()

    found, damage = log_end(files_of(tmp_path))

    assert found == end
    if is_crashed:
        assert damage is not None
        assert (damage.start, damage.end) == (end, end + 10 + len(b"garbage"))
    else:
        assert damage is None, "they may be of an older log"


def test_an_empty_store_ends_where_it_begins(tmp_path: Path) -> None:
    Broker(tmp_path).stop()

    assert end_of(tmp_path) == (0, None)


def test_a_queue_whose_last_record_is_damaged_does_not_end_the_log(
    tmp_path: Path, places: list[int]
) -> None:
    """The walk begins at the last record that is as its queue says."""
    whole, _ = end_of(tmp_path)
    name, index = file_of(tmp_path, places[-1])
    flip(tmp_path / name, index + 3)

    end, wrong = end_of(tmp_path)

    assert (end, wrong is not None) == (places[-1], True)
    assert log_end(files_of(tmp_path))[1].end == whole  # type: ignore[union-attr]
