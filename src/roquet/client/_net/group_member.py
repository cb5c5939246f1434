"""What a session knows of a group member: callbacks for the requests of brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from roquet.client._net.member_calls import QueueState
from roquet.protocol.bodies.tables import ConsumerData
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
