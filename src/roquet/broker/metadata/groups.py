"""PURE: the table of consumer groups and their settings.

See docs/storage/files.md#the-json-of-state-files and docs/broker/topics.md#topics-from-the-start.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.errors import MessageError
from roquet.protocol.bodies.tables import DataVersion, GroupConfig, GroupTable
from roquet.protocol.records.message import check_group

GROUPS_AT_START: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_SHOWN: Final = 100
"""Characters of a name that a remark quotes."""


class GroupRegistry:
    """The consumer groups of one broker, by name.

    Invariant: every change of a group increments `version`. `groups` is one view that never changes
    its identity.

    :param auto_create: whether an unknown group is created when a client first uses it.
    :param limits: how many groups clients may create.
    """

    def __init__(
        self, now_ms: int, *, auto_create: bool = True, limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._groups = {name: GroupConfig(name) for name in GROUPS_AT_START}
        self._auto_create = auto_create
        self.groups: Final[Mapping[str, GroupConfig]] = MappingProxyType(self._groups)
        self.version = DataVersion(now_ms)

    def to_table(self) -> GroupTable:
        return GroupTable(dict(self._groups), self.version)

    def restore(self, saved: GroupTable) -> None:
        """Load saved groups; they override the predefined ones."""
        self._groups.update(saved.groups)
        self.version = saved.version

    def copy_master(self, table: GroupTable) -> bool:
        """Replace all groups by the master's table. Returns whether its version differed.

        See docs/protocol/administration.md#what-a-slave-copies.
        """
        if table.version == self.version:
            return False
        self._groups.clear()
        self._groups.update(table.groups)
        self.version = table.version
        return True

    def create_on_demand(self, name: str, now_ms: int) -> GroupConfig | None:
        """Create an unknown group that a client uses; None: an admin has to create it first.

        :raises Refused: there are too many groups.
        """
        if not (self._auto_create or name.startswith(SYSTEM_PREFIX)):
            return None
        try:
            check_group(name)
        except MessageError:
            return None
        group = GroupConfig(name)
        self.update(group, now_ms)
        return group

    def update(self, group: GroupConfig, now_ms: int) -> None:
        """Create or change a group.

        :raises Refused: there are too many groups, or its retry topic would have too many queues.
        """
        limits = self._limits
        queues = f"retry queues of group {group.name[:_SHOWN]}"
        old = self._groups.get(group.name)
        if old is None:
            refuse_beyond(
                len(self._groups) + 1,
                limits.group_nums_max,
                "groups of this broker",
                "groupNumsMax",
            )
        had = 0 if old is None else old.retry_queues
        refuse_beyond(
            group.retry_queues, max(had, limits.topic_queue_nums_max), queues, "topicQueueNumsMax"
        )
        self._groups[group.name] = group
        self.version = self.version.next(now_ms)

    def delete(self, name: str, now_ms: int) -> bool:
        """Delete a group. Returns whether it existed."""
        if self._groups.pop(name, None) is None:
            return False
        self.version = self.version.next(now_ms)
        return True
