"""Files of the log that are missing at its end when a store is opened: what they held was
durable.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in

LOG_FILE = 8192
CONFIG = StoreConfig(
    Path("/s"),
    [Path("/s/commitlog")],
    LOG_FILE,
    20 * 40,
    index_slots=20,
    index_entries=101,
    requires_durable_log=True,
)
CHECKPOINT = Path("/s/checkpoint")


def opened(drive: Drive, config: StoreConfig = CONFIG) -> Store:
    store = Store(config, lambda: 1_700_000_000_000, drive.mount())
    store.open()
    return store


def put(store: Store, *numbers: int) -> None:
    for number in numbers:
        append_one(store, store.queue("T", 0), b"%d" % number)
        store.end_turn()


def numbers(store: Store) -> list[int]:
    return [int(body) for body in bodies_in(store, "T")]


def log_files(drive: Drive) -> list[Path]:
    return sorted(path for path in drive.names.files if path.parent == Path("/s/commitlog"))


def end(drive: Drive, store: Store, *, is_clean: bool) -> None:
    if is_clean:
        store.close()
    drive.unmount()


@pytest.fixture(params=[True, False], ids=["stopped", "killed"])
def is_clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("count", [3, 200])
def test_a_store_without_the_files_at_the_end_of_its_log_is_not_opened_and_nothing_is_changed(
    count: int, *, is_clean: bool
) -> None:
    """Neither one that had more files, nor one that had no other."""
    drive = Drive(random.Random(1))
    store = opened(drive)
    put(store, *range(count))
    store.make_checkpoint()
    log_end = store.log.end
    end(drive, store, is_clean=is_clean)
    before = dict(drive.names.files)
    drive.remove(log_files(drive)[-1])
    left = len(log_files(drive)) * LOG_FILE
    for _ in range(2):
        store = Store(CONFIG, lambda: 1_700_000_000_000, drive.mount())
        with pytest.raises(
            StoreError,
            match=f"missing .* ends at physical offset {left}, .* durable up to {log_end}"
            rf"\. .* delete {CHECKPOINT}",
        ):
            store.open()
        store.abandon()
        drive.unmount()
    drive.rename(before)
    store = opened(drive)
    assert numbers(store) == list(range(count))


@pytest.mark.parametrize("count", [3, 200])
def test_without_its_checkpoint_it_begins_with_what_is_left_and_says_so(
    caplog: pytest.LogCaptureFixture, count: int, *, is_clean: bool
) -> None:
    drive = Drive(random.Random(1))
    store = opened(drive)
    put(store, *range(count))
    store.make_checkpoint()
    end(drive, store, is_clean=is_clean)
    drive.remove(log_files(drive)[-1])
    drive.remove(CHECKPOINT)
    store = opened(drive)
    assert (
        len(
            [
                line
                for line in caplog.messages
                if "commit log is shorter than its consume queues" in line
            ]
        )
        == 1
    )
    left = len(numbers(store))
    assert numbers(store) == list(range(left))
    put(store, *range(left, left + 10))
    store.close()
    drive.unmount()
    assert numbers(opened(drive)) == list(range(left + 10))


def test_a_store_that_is_copied_from_a_master_is_opened_and_told_of(
    caplog: pytest.LogCaptureFixture, *, is_clean: bool
) -> None:
    drive = Drive(random.Random(1))
    store = opened(drive)
    put(store, *range(3))
    store.make_checkpoint()
    end(drive, store, is_clean=is_clean)
    drive.remove(log_files(drive)[-1])
    store = opened(drive, replace(CONFIG, requires_durable_log=False))
    assert [line for line in caplog.messages if "commit log is shorter than its checkpoint" in line]
    store.close()
    drive.unmount()
    assert opened(drive).log.end == 0, "its checkpoint is of the log that it has now"


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_of_the_machine_loses_no_file_that_the_checkpoint_counts(seed: int) -> None:
    drive = Drive(random.Random(seed))
    store = opened(drive)
    put(store, *range(70 + seed))
    store.make_checkpoint()
    put(store, *range(70 + seed, 300))
    drive.crash()
    store = opened(drive)
    found = numbers(store)
    assert found[: 70 + seed] == list(range(70 + seed))


def test_a_log_that_was_cut_can_be_opened_again() -> None:
    drive = Drive(random.Random(1))
    store = opened(drive)
    put(store, *range(200))
    store.make_checkpoint()
    store.truncate(store.log.start)
    store.close()
    drive.unmount()
    assert opened(drive).log.end == 0
