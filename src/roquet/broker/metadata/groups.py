"""PURE: the consumer groups of this broker and what each of them may do.

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
"""Characters of a name that a remark repeats."""


class GroupRegistry:
    """The consumer groups of one broker, by name.

    Keeps: every change of a group moves `version` on; `groups` is the same view for ever.

    :param auto_create: whether a group comes to be when it is first heard of.
    :param limits: how many groups clients may make.
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
        """Put what was saved over the groups of the start."""
        self._groups.update(saved.groups)
        self.version = saved.version

    def copy_master(self, table: GroupTable) -> bool:
        """Become the master's table, unless it already is; tells whether anything changed.

        See docs/protocol/administration.md#what-a-slave-copies.
        """
        if table.version == self.version:
            return False
        self._groups.clear()
        self._groups.update(table.groups)
        self.version = table.version
        return True

    def create_on_demand(self, name: str, now_ms: int) -> GroupConfig | None:
        """Create an unknown group that somebody uses; None: it has to be created by an admin first.

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
        limits, queues = self._limits, f"retry queues of group {group.name[:_SHOWN]}"
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
        """Forget a group; tells whether there was one."""
        if self._groups.pop(name, None) is None:
            return False
        self.version = self.version.next(now_ms)
        return True
