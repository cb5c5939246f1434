"""A broker's state by Apache's names.

See docs/broker/statistics.md#runtime-information.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import StoreSettings
from roquet.broker.metrics.runtime_info import RuntimeInfo, duration_text, size_text
from roquet.broker.offsets.consumer_offsets import DelayOffsets
from roquet.common.steps import Steps, finished, in_one
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.small_stores import Clock, config, put

NO_FIGURES: Final = in_one(dict[str, str])


class Broker:
    """The runtime information of a store in a folder."""

    def __init__(self, folder: Path, drive: Drive) -> None:
        self.clock = Clock()
        self.store = Store(config(folder), self.clock.now_ms, disk=drive.mount())
        self.store.open()
        self.delays = DelayOffsets()
        self.config = BrokerConfig(store=StoreSettings(store_path_root_dir=str(folder)))
        self.now_ms = 1_000_000

    def info(
        self,
        *measured: Callable[[], Mapping[str, str]],
        in_steps: Callable[[], Steps[Mapping[str, str]]] = NO_FIGURES,
    ) -> RuntimeInfo:
        return RuntimeInfo(
            self.config, self.store, self.delays, lambda: self.now_ms, measured, in_steps
        )

    def table(self) -> dict[str, str]:
        return finished(self.info().table())


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


@pytest.fixture
def broker(tmp_path: Path, drive: Drive) -> Broker:
    return Broker(tmp_path, drive)


def test_figures_stand_in_the_order_of_their_names(broker: Broker) -> None:
    names = list(broker.table())
    assert names == sorted(names)


def test_what_is_measured_replaces_what_is_not(broker: Broker) -> None:
    info = broker.info(
        lambda: {"sendThreadPoolQueueSize": "3", "mine": "1"},
        lambda: {"mine": "2"},
        in_steps=in_one(lambda: {"dispatchMaxBuffer": "9"}),
    )
    table = finished(info.table())
    names = ("sendThreadPoolQueueSize", "mine", "dispatchMaxBuffer", "putMessageFailedTimes")
    assert [table[name] for name in names] == ["3", "2", "9", "0"]


def test_figures_that_take_long_are_made_before_all_others(broker: Broker) -> None:
    """They come in steps, so that the others would be old by then."""

    def in_steps() -> Steps[Mapping[str, str]]:
        yield
        put(broker.store, b"meanwhile")
        return {}

    table = finished(broker.info(in_steps=in_steps).table())
    assert table["commitLogMaxOffset"] == str(broker.store.log.end)
    assert broker.store.log.end > 0


def test_the_broker_runs_since_its_information_was_made(broker: Broker) -> None:
    info = broker.info()
    broker.now_ms += 61_999
    table = finished(info.table())
    assert table["bootTimestamp"] == "1000000"
    assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"


def test_settings_are_shown_as_they_are(broker: Broker) -> None:
    broker.config = replace(broker.config, pull_thread_pool_queue_capacity=77)
    table = broker.table()
    assert table["pullThreadPoolQueueCapacity"] == "77"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["startAcceptSendRequestTimeStamp"] == "0"


def test_the_log_is_shown_with_its_ends_and_what_is_not_durable(broker: Broker) -> None:
    put(broker.store, b"b" * 2000)
    put(broker.store, b"b")
    end = broker.store.log.end
    table = broker.table()
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", str(end))
    assert table["remainHowManyDataToFlush"] == size_text(end)
    assert table["earliestMessageTimeStamp"] == str(broker.store.store_time("T", 0, 0))
    broker.store.log.sync_work(end)()
    broker.store.log.synced(end)
    assert broker.table()["remainHowManyDataToFlush"] == "0 B"


def test_a_well_store_has_no_failure_and_dispatches_all(broker: Broker) -> None:
    put(broker.store, b"b")
    table = broker.table()
    names = ("storeFailure", "commitLogHoles", "commitLogHoleBytes", "dispatchBehindBytes")
    assert [table[name] for name in names] == ["", "0", "0", "0"]


def test_an_empty_log_has_no_earliest_message(broker: Broker) -> None:
    assert broker.table()["earliestMessageTimeStamp"] == "-1"


def test_a_damaged_first_record_has_no_store_time(broker: Broker) -> None:
    put(broker.store, b"b")
    memory, at, _ = broker.store.log.place(1)
    memory[4:8] = bytes(4)
    assert at > 8
    assert broker.table()["earliestMessageTimeStamp"] == "-1"


def test_each_delay_level_is_shown_with_its_offset_and_the_end_of_its_queue(
    broker: Broker,
) -> None:
    broker.delays.delivered(12, 4)
    broker.delays.delivered(3, 1)
    for _ in range(2):
        put(broker.store, b"b", topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    levels = {
        name: value
        for name, value in broker.table().items()
        if name.startswith("scheduleMessageOffset_")
    }
    assert levels == {"scheduleMessageOffset_12": "4,0", "scheduleMessageOffset_3": "1,2"}


def test_each_folder_of_the_log_has_the_ratio_of_its_drive_and_the_least_is_the_logs(
    broker: Broker, drive: Drive, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    store = StoreSettings(
        store_path_root_dir=str(tmp_path), store_path_commit_log=f"{tmp_path},{other}"
    )
    broker.config = replace(broker.config, store=store)
    drive.used_ratio = 0.9
    drive.refuse("read", errno.EIO)
    table = broker.table()
    ratios = [table[f"commitLogDiskRatio_{folder}"] for folder in (tmp_path, other)]
    assert (ratios, table["commitLogDiskRatio"]) == (["-1.0", "0.90"], "-1.0")
    assert table["commitLogDirCapacity"].startswith("Total : ")


def test_the_ratios_are_those_by_which_the_broker_refuses_messages(
    broker: Broker, drive: Drive
) -> None:
    drive.used_ratio = 0.9
    names = ("commitLogDiskRatio", "consumeQueueDiskRatio")
    assert [broker.table()[name] for name in names] == ["0.90", "0.90"]

    drive.refuse("read", errno.EIO, times=2)
    table = broker.table()
    assert [table[name] for name in names] == ["-1.0", "-1.0"]


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (999, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (59_999, "[ 0 days, 0 hours, 0 minutes, 59 seconds ]"),
        (86_399_999, "[ 0 days, 23 hours, 59 minutes, 59 seconds ]"),
        (90_061_000, "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"),
    ],
)
def test_a_duration_is_cut_to_whole_seconds(span_ms: int, text: str) -> None:
    assert duration_text(span_ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (1 << 60, "1.0 EiB"),
        (1 << 70, "1024.0 EiB"),
    ],
)
def test_a_size_is_shown_in_the_unit_that_it_fills(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.integers(1024, 1 << 63))
def test_a_shown_size_is_within_a_twentieth_of_the_unit(size: int) -> None:
    number, unit = size_text(size).split()
    power = "KMGTPE".index(unit[0]) + 1
    assert 1 <= float(number) <= 1024
    assert abs(float(number) - size / 1024**power) <= 0.0501
