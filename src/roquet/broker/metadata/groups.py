"""PURE: the table of consumer groups and their settings.

See docs/storage/files.md#the-json-of-state-files and docs/broker/topics.md#topics-from-the-start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.common.listeners import Listeners, Then
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies.tables import DataVersion, GroupConfig, GroupTable
from roquet.protocol.records.message import check_group
from roquet.protocol.remoting.codes import ResponseCode

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

    Invariant: every change of a group increments `version` and calls `changed`. `groups` is one
    view that never changes its identity.

    :param auto_create: whether an unknown group is created when a client first uses it.
    :param limits: how many groups clients may create.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        auto_create: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._limits = limits or Limits()
        self._groups = {name: GroupConfig(name) for name in GROUPS_AT_START}
        self._auto_create = auto_create
        self.groups: Final[Mapping[str, GroupConfig]] = MappingProxyType(self._groups)
        self.version = DataVersion(now_ms())
        self.changed = Listeners[[Then | None]]()
        """Called after each change, with what is to be called when it is on disk."""

    def to_table(self) -> GroupTable:
        return GroupTable(dict(self._groups), self.version)

    def restore(self, saved: GroupTable) -> None:
        """Load saved groups; they override the predefined ones."""
        self._groups.update(saved.groups)
        self.version = saved.version

    def copy_master(self, table: GroupTable) -> None:
        """Replace all groups by the master's table, if its version differs.

        See docs/protocol/administration.md#what-a-slave-copies.
        """
        if table.version == self.version:
            return
        self._groups.clear()
        self._groups.update(table.groups)
        self.version = table.version
        self.changed(None)

    def get_or_create(self, name: str) -> GroupConfig:
        """A group, created if that is allowed.

        :raises Refused: an admin has to create it first, or there are too many groups.
        """
        known = self._groups.get(name)
        if known is not None:
            return known
        if not self._may_create(name):
            remark = f"consumer group {name} does not exist"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        group = GroupConfig(name)
        self.update(group)
        return group

    def _may_create(self, name: str) -> bool:
        if not (self._auto_create or name.startswith(SYSTEM_PREFIX)):
            return False
        try:
            check_group(name)
        except MessageError:
            return False
        return True

    def update(self, group: GroupConfig, then: Then | None = None) -> None:
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
        self.version = self.version.next(self._now_ms())
        self.changed(then)

    def delete(self, name: str, then: Then | None = None) -> None:
        """Delete a group. Succeeds for an unknown group, too."""
        if self._groups.pop(name, None) is not None:
            self.version = self.version.next(self._now_ms())
        self.changed(then)
