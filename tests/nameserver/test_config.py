"""Which settings of a name server a request may change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.common.settings import setting_names
from roquet.nameserver.config import REMOTELY, NamesrvConfig


def test_only_settings_that_affect_routes_may_be_changed_by_a_request() -> None:
    config = NamesrvConfig()
    names = setting_names(NamesrvConfig)
    assert {name for name in names if config.is_remote(name)} == REMOTELY
    assert set(names) > REMOTELY


@pytest.mark.parametrize("name", ["listenPort", "kvConfigPath", "configBlackList", "unknown", ""])
def test_no_request_sets_files_ports_or_the_black_list(name: str) -> None:
    assert not NamesrvConfig().is_remote(name)


@pytest.mark.parametrize("black", ["clusterTest", "a; clusterTest ;b", ";clusterTest"])
def test_the_black_list_takes_settings_away(black: str) -> None:
    config = replace(NamesrvConfig(), config_black_list=black)
    assert not config.is_remote("clusterTest")
    assert config.is_remote("orderMessageEnable")


def test_an_empty_black_list_gives_no_further_setting_away() -> None:
    config = replace(NamesrvConfig(), config_black_list="")
    assert config.is_remote("clusterTest")
    assert not config.is_remote("configBlackList")
