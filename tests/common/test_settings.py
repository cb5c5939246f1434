"""How text becomes a configuration, and what is said about text that does not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from roquet.common.settings import (
    read_file,
    read_settings,
    setting,
    setting_names,
    show_settings,
    update_settings,
)
from roquet.errors import ConfigError


class Flush(Enum):
    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class StoreConfig:
    flush_disk_type: Flush = Flush.ASYNC
    mapped_file_size_commit_log: int = setting(
        1024, aliases=("mapedFileSizeCommitLog",), at_least=1
    )
    listen_port: int = 8888


@dataclass(frozen=True, slots=True)
class Config:
    broker_name: str = "broker"
    broker_ip1: str | None = setting(None, "brokerIP1")
    listen_port: int = setting(10911, at_least=0, at_most=65535)
    slave_read_enable: bool = False
    ratio: float = 0.5
    store: StoreConfig = StoreConfig()


def test_without_pairs_everything_has_its_default() -> None:
    assert read_settings(Config, []) == (Config(), [])


def test_names_are_camel_case_or_as_the_field_says() -> None:
    pairs = [
        ("brokerName", "a"),
        ("brokerIP1", "10.0.0.1"),
        ("slaveReadEnable", "TRUE"),
        ("ratio", "0.75"),
    ]

    config, warnings = read_settings(Config, pairs)

    assert config == Config("a", "10.0.0.1", slave_read_enable=True, ratio=0.75)
    assert warnings == []


def test_one_list_of_pairs_feeds_every_part() -> None:
    config, warnings = read_settings(Config, [("flushDiskType", "SYNC_FLUSH"), ("listenPort", "1")])

    assert config == Config(listen_port=1, store=StoreConfig(Flush.SYNC, listen_port=1))
    assert warnings == []


def test_an_unknown_name_is_a_warning() -> None:
    assert read_settings(Config, [("brokerNmae", "a")], "broker.conf") == (
        Config(),
        [
            "broker.conf: brokerNmae is no setting known here, it has no effect; did you mean brokerName?"
        ],
    )


def test_a_name_like_no_setting_gets_no_proposal() -> None:
    assert read_settings(Config, [("brokerNumber", "1"), ("b" * 60_000, "1")])[1] == [
        "brokerNumber is no setting known here, it has no effect",
        "b" * 60_000 + " is no setting known here, it has no effect",
    ]


def test_a_file_with_many_odd_names_gets_a_few_proposals() -> None:
    _, warnings = read_settings(Config, [(f"brokerName{number}", "a") for number in range(5000)])

    assert len(warnings) == 5000
    assert 0 < sum("did you mean" in warning for warning in warnings) < 50


def test_a_file_that_is_no_text_is_named_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"a=\xb5\n")

    with pytest.raises(
        ConfigError, match=r"broker\.conf is no properties file: byte 2 is no UTF-8"
    ):
        read_file(path)


def test_an_older_spelling_is_taken_with_a_warning() -> None:
    config, warnings = read_settings(Config, [("mapedFileSizeCommitLog", "7")])

    assert config.store.mapped_file_size_commit_log == 7
    assert warnings == ["mapedFileSizeCommitLog is an older spelling of mappedFileSizeCommitLog"]


@pytest.mark.parametrize("in_order", [1, -1])
def test_the_official_spelling_beats_the_older_one(in_order: int) -> None:
    pairs = [("mapedFileSizeCommitLog", "7"), ("mappedFileSizeCommitLog", "8")][::in_order]

    config, _ = read_settings(Config, pairs)

    assert config.store.mapped_file_size_commit_log == 8


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("listenPort", "0x10", "a whole number in decimal digits from 0 up to 65535"),
        ("listenPort", "1024*2", "a whole number in decimal digits from 0 up to 65535"),
        ("listenPort", "65536", "a whole number in decimal digits from 0 up to 65535"),
        ("listenPort", "-1", "a whole number in decimal digits from 0 up to 65535"),
        ("listenPort", "1_0", "a whole number in decimal digits from 0 up to 65535"),
        ("listenPort", "", "a whole number in decimal digits from 0 up to 65535"),
        ("ratio", "nan", "a decimal number"),
        ("slaveReadEnable", "yes", "true or false"),
        ("flushDiskType", "SYNC", "one of ASYNC_FLUSH, SYNC_FLUSH"),
    ],
)
def test_a_bad_value_says_where_it_is_and_what_is_allowed(
    name: str, text: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(Config, [(name, text)], "broker.conf")

    assert str(caught.value) == f"{name}={text} in broker.conf: allowed is {allowed}"


def test_blanks_after_a_number_or_a_word_do_not_count() -> None:
    config, _ = read_settings(
        Config, [("listenPort", "1 "), ("slaveReadEnable", "true\t"), ("brokerName", "a ")]
    )

    assert config == Config(
        "a ", listen_port=1, slave_read_enable=True, store=StoreConfig(listen_port=1)
    )


def test_an_empty_value_unsets_what_may_be_unset() -> None:
    assert read_settings(Config, [("brokerIP1", "")])[0].broker_ip1 is None


def test_an_update_leaves_the_other_settings_alone() -> None:
    before = Config("a", store=StoreConfig(Flush.SYNC))

    after, _ = update_settings(before, [("listenPort", "1")])

    assert after == Config("a", listen_port=1, store=StoreConfig(Flush.SYNC, listen_port=1))


def test_what_is_shown_can_be_read_again() -> None:
    config = Config("a", "10.0.0.1", 1, True, 0.25, StoreConfig(Flush.SYNC, 3, 1))

    shown = show_settings(config)

    assert ("flushDiskType", "SYNC_FLUSH") in shown
    assert {name for name, _ in shown} == setting_names(Config)
    assert read_settings(Config, shown) == (config, [])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"configuration file .*none\.conf: No such file"):
        read_file(tmp_path / "none.conf")


def test_a_file_with_a_broken_escape_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\nb=C:\\users\n")

    with pytest.raises(ConfigError, match=r"broker\.conf: line 2: "):
        read_file(path)
