"""The consumer groups of a broker.

See docs/broker/topics.md.
"""

from __future__ import annotations

import pytest

from roquet.broker.metadata.groups import GROUPS_AT_START, GroupRegistry
from roquet.protocol.bodies.tables import DataVersion, GroupConfig, GroupTable

NOW = 1_700_000_000_000


def test_a_broker_starts_with_apaches_groups() -> None:
    groups = GroupRegistry(NOW)
    assert tuple(groups.groups) == GROUPS_AT_START
    assert groups.version == DataVersion(NOW, 0)


def test_a_group_comes_to_be_when_it_is_first_heard_of() -> None:
    groups = GroupRegistry(NOW)
    assert groups.create_on_demand("g", NOW + 5) == GroupConfig("g") == groups.groups["g"]
    assert groups.version == DataVersion(NOW + 5, 1)


@pytest.mark.parametrize("name", ["", " ", "a@b", "x" * 256, "g\n"])
def test_what_cannot_be_a_group_does_not_become_one(name: str) -> None:
    groups = GroupRegistry(NOW)
    assert groups.create_on_demand(name, NOW) is None
    assert name not in groups.groups


def test_only_system_groups_are_made_on_demand_where_an_admin_makes_the_others() -> None:
    groups = GroupRegistry(NOW, auto_create=False)
    assert groups.create_on_demand("g", NOW) is None
    assert groups.create_on_demand("CID_RMQ_SYS_TRANS", NOW) == GroupConfig("CID_RMQ_SYS_TRANS")


def test_a_saved_table_goes_over_the_groups_of_the_start() -> None:
    groups = GroupRegistry(NOW)
    tools = GroupConfig("TOOLS_CONSUMER", retry_max_times=3)
    groups.restore(GroupTable({"TOOLS_CONSUMER": tools, "g": GroupConfig("g")}, DataVersion(5, 9)))
    assert groups.groups["TOOLS_CONSUMER"] == tools
    assert len(groups.groups) == len(GROUPS_AT_START) + 1
    assert groups.version == DataVersion(5, 9)


def test_a_slave_takes_the_masters_table_when_its_version_differs() -> None:
    groups = GroupRegistry(NOW)
    view = groups.groups
    assert groups.copy_master(GroupTable({"g": GroupConfig("g")}, DataVersion(5, 9)))
    assert not groups.copy_master(GroupTable({}, DataVersion(5, 9)))
    assert dict(view) == {"g": GroupConfig("g")}


def test_updates_and_deletions_move_the_version() -> None:
    groups = GroupRegistry(NOW)
    groups.update(GroupConfig("g", consume_enable=False), NOW + 1)
    assert groups.delete("g", NOW + 2)
    assert not groups.delete("g", NOW + 3)
    assert groups.version == DataVersion(NOW + 2, 2)
    assert groups.to_table() == GroupTable(
        {name: GroupConfig(name) for name in GROUPS_AT_START}, groups.version
    )
