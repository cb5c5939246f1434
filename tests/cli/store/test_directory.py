"""The store that a command line names: its files, and the sizes that the options know."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.cli.store.directory import StoreLocation
from roquet.errors import ConfigError, StoreError
from roquet.storetool.files import QUEUE_FILE_SIZE
from roquet.storetool.read.index_files import Shape
from tests.storetool.stores import LOG_FILE, QUEUE_FILE, SHAPE, Broker, filled, overwrite


def located(
    folder: Path,
    *logs: Path,
    config: Path | None = None,
    sizes: tuple[int | None, int | None] = (None, None),
    shape: tuple[int | None, int | None] = (None, None),
) -> StoreLocation:
    return StoreLocation(folder, logs, config, *sizes, *shape)


def settings(path: Path, **values: object) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def test_without_options_sizes_follow_from_the_files(tmp_path: Path) -> None:
    filled(tmp_path, 40)

    location = located(tmp_path)

    assert location.files.log.file_size == LOG_FILE
    assert location.files.queue_file_size == QUEUE_FILE
    assert location.shape == SHAPE


def test_sizes_of_the_options_count_before_those_of_the_configuration(tmp_path: Path) -> None:
    filled(tmp_path / "s", 4)
    config = settings(
        tmp_path / "c",
        mappedFileSizeCommitLog=1 << 20,
        mappedFileSizeConsumeQueue=40,
        maxHashSlotNum=7,
        maxIndexNum=9,
    )

    known = located(tmp_path / "s", config=config)
    given = located(tmp_path / "s", config=config, sizes=(1 << 12, 200), shape=(50, 40))

    assert (known.files.log.file_size, known.files.queue_file_size) == (1 << 20, 40)
    assert known.shape == Shape(7, 9)
    assert (given.files.log.file_size, given.files.queue_file_size) == (1 << 12, 200)
    assert given.shape == SHAPE


def test_the_configuration_s_log_folders_are_searched(tmp_path: Path) -> None:
    logs = tmp_path / "log"
    filled(tmp_path / "s", 4, commit_log_folders=[logs])
    config = settings(
        tmp_path / "c", storePathRootDir=tmp_path / "elsewhere", storePathCommitLog=logs,
        mappedFileSizeCommitLog=LOG_FILE,
    )  # fmt: skip

    assert len(located(tmp_path / "s", config=config).files.log.files) == 1
    assert len(located(tmp_path / "s", logs).files.log.files) == 1


def test_without_a_log_folder_in_the_configuration_it_is_below_the_store(tmp_path: Path) -> None:
    filled(tmp_path / "s", 4)
    config = settings(
        tmp_path / "c", storePathRootDir=tmp_path / "other", mappedFileSizeCommitLog=LOG_FILE
    )

    location = located(tmp_path / "s", config=config)

    assert location.files.log.folders[0] == tmp_path / "s" / "commitlog"
    assert len(location.files.log.files) == 1


def test_a_configuration_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path / "s", 4)

    with pytest.raises(ConfigError, match="none"):
        located(tmp_path / "s", config=tmp_path / "none")


def test_an_index_whose_shape_cannot_be_found_has_none(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    (path,) = (tmp_path / "index").iterdir()
    overwrite(path, 0, bytes(40))

    assert located(tmp_path).shape is None
    assert located(tmp_path, shape=(50, 40)).shape == SHAPE
    with pytest.raises(StoreError, match=r"give -c broker\.conf, or --index-slots"):
        located(tmp_path).plan(queues=False, index=True)
    assert located(tmp_path).plan(queues=True, index=False).shape == Shape()


def test_a_store_without_an_index_has_the_default_shape(tmp_path: Path) -> None:
    filled(tmp_path, 4, index_enabled=False)

    assert located(tmp_path).shape == Shape()


def test_a_plan_has_the_sizes_of_the_store_and_apache_s_delay_levels(tmp_path: Path) -> None:
    filled(tmp_path, 20, ext_file_size=240)

    plan = located(tmp_path).plan(queues=True, index=True)

    assert (plan.queues, plan.index, plan.queue_file_size) == (True, True, QUEUE_FILE)
    assert (plan.shape, plan.ext_file_size) == (SHAPE, 240)
    assert (len(plan.delay_levels_ms), plan.delay_levels_ms[0]) == (18, 1000)
    assert plan.delay_levels_ms[-1] == 2 * 60 * 60 * 1000


def test_a_plan_has_the_configuration_s_delay_levels(tmp_path: Path) -> None:
    Broker(tmp_path / "s").stop()
    config = settings(tmp_path / "c", messageDelayLevel="1s 2m")

    plan = located(tmp_path / "s", config=config).plan(queues=True, index=True)

    assert plan.delay_levels_ms == (1000, 120_000)
    assert located(tmp_path / "s").plan(queues=True, index=True).queue_file_size == QUEUE_FILE_SIZE
