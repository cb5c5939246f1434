"""Values that follow from several settings of the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.config.broker import read_config
from roquet.broker.config.store import FlushDisk, StoreSettings
from roquet.errors import ConfigError
from roquet.storage.retention import Retention


def test_the_defaults_are_those_of_a_stores_retention() -> None:
    assert StoreSettings().retention == Retention()


@pytest.mark.parametrize(
    ("delete_when", "hours"),
    [("04", {4}), ("0;23", {0, 23}), (" 1 ; 02;", {1, 2}), ("4;4", {4}), ("", set())],
)
def test_files_are_deleted_at_any_of_several_hours(delete_when: str, hours: set[int]) -> None:
    assert StoreSettings(delete_when=delete_when).retention.hours == hours


@pytest.mark.parametrize("delete_when", ["24", "-1", "4;24", "four", "4,5", "4:00"])
def test_an_hour_that_no_day_has_is_refused(delete_when: str) -> None:
    with pytest.raises(ConfigError, match="allowed are hours from 0 to 23"):
        read_config([("deleteWhen", delete_when)], environment={})


def test_hours_become_ms_and_percents_become_shares() -> None:
    settings = StoreSettings(
        file_reserved_time=1,
        disk_max_used_space_ratio=10,
        disk_space_clean_forcibly_ratio=20,
        disk_space_warning_level_ratio=30,
        clean_file_forcibly_enable=False,
    )
    assert settings.retention == Retention(3_600_000, frozenset({4}), 0.1, 0.2, 0.3, False)


@given(st.integers(20, 1 << 31))
def test_a_queue_file_has_whole_entries_and_room_for_what_was_asked(size: int) -> None:
    rounded = StoreSettings(mapped_file_size_consume_queue=size).consume_queue_file_size
    assert rounded % 20 == 0
    assert 0 <= rounded - size < 20


@pytest.mark.parametrize(("setting", "size"), [(1, 10), (9, 10), (10, 10), (11, 11)])
def test_the_largest_message_has_ten_bytes_at_least(setting: int, size: int) -> None:
    assert StoreSettings(max_message_size=setting).message_size_max == size


@pytest.mark.parametrize("flush", FlushDisk)
def test_only_sync_flush_syncs_before_a_send_is_acknowledged(flush: FlushDisk) -> None:
    settings = StoreSettings(flush_disk_type=flush)
    assert settings.is_sync_flush == (flush is FlushDisk.SYNC_FLUSH)
