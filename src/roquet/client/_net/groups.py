"""The groups that a client is in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from roquet.client._net.member_calls import QueueState
from roquet.errors import MessageError
from roquet.protocol.bodies.tables import ConsumerData, Heartbeat
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record
from roquet.transport.connection import Connection

AnswerCheck: TypeAlias = Callable[[CheckTransactionHeader, Record, Connection], None]
"""Handles a check-back: its header, the half message, and the connection for the answer."""


@dataclass(frozen=True)
class GroupMember:
    """A consumer of this client, as callbacks for the session.

    - `data` returns its part of the heartbeats.
    - `wake` is called when the members of the group changed.
    - `reset` is called with new offsets of queues.
    - `states` returns the states of its queues.
    - `consume` delivers a message of an administrator; it returns whether the application
      acknowledged it.
    - `started_ms` is the time of its start, in ms since 1970.
    """

    data: Callable[[], ConsumerData]
    wake: Callable[[], None]
    reset: Callable[[Mapping[MessageQueue, int]], None]
    states: Callable[[], Mapping[MessageQueue, QueueState]]
    consume: Callable[[Record, str], Awaitable[bool]]
    started_ms: int


class Groups:
    """The producer groups and the consumer groups that a client is in."""

    def __init__(self) -> None:
        self.producers: dict[str, AnswerCheck | None] = {}
        self.consumers: dict[str, GroupMember] = {}

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)

    def add_consumer(self, group: str, member: GroupMember) -> None:
        """Add a consumer group.

        :raises MessageError: this client is in the group already.
        """
        if group in self.consumers:
            raise MessageError(f"one client cannot be in group {group} twice: use another session")
        self.consumers[group] = member

    def heartbeat(self, client_id: str) -> Heartbeat:
        """The heartbeat of a client in these groups."""
        consumers = tuple(member.data() for member in self.consumers.values())
        return Heartbeat(client_id, tuple(sorted(self.producers)), consumers)
