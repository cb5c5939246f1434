"""The consumer groups of a broker.

See docs/broker/topics.md.
"""

from __future__ import annotations

import pytest

from roquet.broker.metadata.groups import GROUPS_AT_START, GroupRegistry
from roquet.common.listeners import Then
from roquet.errors import Refused
from roquet.protocol.bodies.tables import DataVersion, GroupConfig, GroupTable

NOW = 1_700_000_000_000


def registry(*, auto_create: bool = True) -> GroupRegistry:
    return GroupRegistry(lambda: NOW, auto_create=auto_create)


def changes_of(groups: GroupRegistry) -> list[Then | None]:
    """What each further change is reported with."""
    reported: list[Then | None] = []
    groups.changed.add(reported.append)
    return reported


def test_a_broker_starts_with_apaches_groups() -> None:
    groups = registry()
    assert tuple(groups.groups) == GROUPS_AT_START
    assert groups.version == DataVersion(NOW, 0)


def test_a_group_comes_to_be_when_it_is_first_heard_of() -> None:
    groups = registry()
    reported = changes_of(groups)
    for _ in range(2):
        assert groups.get_or_create("g") == GroupConfig("g") == groups.groups["g"]
    assert groups.version == DataVersion(NOW, 1)
    assert reported == [None]


@pytest.mark.parametrize("name", ["", " ", "a@b", "x" * 256, "g\n"])
def test_what_cannot_be_a_group_does_not_become_one(name: str) -> None:
    groups = registry()
    reported = changes_of(groups)
    with pytest.raises(Refused, match="does not exist"):
        groups.get_or_create(name)
    assert name not in groups.groups
    assert reported == []


def test_only_system_groups_are_made_on_demand_where_an_admin_makes_the_others() -> None:
    groups = registry(auto_create=False)
    with pytest.raises(Refused, match="consumer group g does not exist"):
        groups.get_or_create("g")
    assert groups.get_or_create("CID_RMQ_SYS_TRANS") == GroupConfig("CID_RMQ_SYS_TRANS")


def test_a_saved_table_goes_over_the_groups_of_the_start() -> None:
    groups = registry()
    tools = GroupConfig("TOOLS_CONSUMER", retry_max_times=3)
    groups.restore(GroupTable({"TOOLS_CONSUMER": tools, "g": GroupConfig("g")}, DataVersion(5, 9)))
    assert groups.groups["TOOLS_CONSUMER"] == tools
    assert len(groups.groups) == len(GROUPS_AT_START) + 1
    assert groups.version == DataVersion(5, 9)


def test_a_slave_takes_the_masters_table_when_its_version_differs() -> None:
    groups = registry()
    view = groups.groups
    reported = changes_of(groups)
    groups.copy_master(GroupTable({"g": GroupConfig("g")}, DataVersion(5, 9)))
    groups.copy_master(GroupTable({}, DataVersion(5, 9)))
    assert dict(view) == {"g": GroupConfig("g")}
    assert reported == [None]


def test_updates_and_deletions_move_the_version() -> None:
    groups = registry()
    reported = changes_of(groups)

    def then(error: OSError | None) -> None: ...

    groups.update(GroupConfig("g", consume_enable=False), then)
    groups.delete("g", then)
    groups.delete("g", then)
    assert groups.version == DataVersion(NOW, 2)
    assert reported == [then] * 3
    assert groups.to_table() == GroupTable(
        {name: GroupConfig(name) for name in GROUPS_AT_START}, groups.version
    )
