"""The requests that brokers send to a client about the groups that it is in.

See docs/protocol/request-codes.md#brokers-to-clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from roquet.client._net.member_calls import (
    QueueState,
    consumed_body,
    reset_offsets,
    running_info_body,
    status_body,
)
from roquet.client._net.stacks import stacks
from roquet.common.loop_time import now_s
from roquet.errors import Refused
from roquet.protocol.bodies.tables import ConsumerData
from roquet.protocol.headers.members import ConsumeDirectlyHeader, ConsumerGroupHeader
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.records.message import PRODUCER_GROUP, MessageQueue
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

CONSUME_S_MAX: Final = 10.0
"""How long brokers wait for the result of a message that is consumed directly."""


CheckBackHandler: TypeAlias = Callable[[CheckTransactionHeader, Record, Connection], None]
"""Handles a check-back: its header, the half message, and the connection for the answer."""


@dataclass(frozen=True)
class MemberCallbacks:
    """What a session knows of a member of a consumer group, and what it calls for brokers.

    - `data` is its part of the heartbeats.
    - `wake` is called when the members of the group changed.
    - `reset` is called with new offsets of queues.
    - `states` returns the states of its queues.
    - `consume` delivers a message of an administrator; it returns whether the application
      acknowledged it.
    - `properties` returns what administrators see of its settings, by Apache's names.
    - `is_ordered`: it consumes the messages of a queue one at a time.
    - `consume_status` returns a ConsumeStatus per topic.
    """

    data: ConsumerData
    wake: Callable[[], None]
    reset: Callable[[Mapping[MessageQueue, int]], None]
    states: Callable[[], Mapping[MessageQueue, QueueState]]
    consume: Callable[[Record, str], Awaitable[bool]]
    properties: Callable[[], Mapping[str, str]] = dict[str, str]
    is_ordered: bool = False
    consume_status: Callable[[], Mapping[str, Mapping[str, Any]]] = dict[str, Mapping[str, Any]]


class BrokerRequests:
    """Handles the requests of brokers: passes them on to the members of the groups."""

    def __init__(
        self,
        producers: Mapping[str, CheckBackHandler | None],
        consumers: Mapping[str, MemberCallbacks],
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self.handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
        }

    def _members_changed(self, request: Command, _: Connection) -> None:
        member = self._consumers.get(ConsumerGroupHeader.read(request.fields).consumer_group)
        if member is not None:
            member.wake()

    def _reset_offsets(self, request: Command, connection: Connection) -> None:
        member = self._consumers.get(request.fields.get("group", ""))
        offsets = reset_offsets(request.body)
        log.info(
            "offsets reset by an administrator: group=%s topic=%s broker=%s offsets=%s",
            request.fields.get("group", ""),
            request.fields.get("topic", ""),
            connection.peer_address,
            ",".join(f"{queue}={offset}" for queue, offset in sorted(offsets.items())),
        )
        if member is not None:
            member.reset(offsets)

    def _status(self, request: Command, _: Connection) -> Command:
        member = self._member(request.fields.get("group", ""))
        return request.answer(
            ResponseCode.SUCCESS, body=status_body(member.states(), request.fields.get("topic", ""))
        )

    def _running_info(self, request: Command, _: Connection) -> Command:
        member = self._member(ConsumerGroupHeader.read(request.fields).consumer_group)
        jstack = stacks() if request.fields.get("jstackEnable") == "true" else None
        body = running_info_body(
            member.data, member.states(), member.properties(), member.consume_status(), jstack
        )
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _consume_directly(self, request: Command, connection: Connection) -> None:
        header = ConsumeDirectlyHeader.read(request.fields)
        member, record = self._member(header.consumer_group), decode(request.body)
        connection.later.answer(
            request, self._consumed(request, member, record, header.broker_name or "")
        )

    async def _consumed(
        self, request: Command, member: MemberCallbacks, record: Record, broker_name: str
    ) -> Command | None:
        """The answer with the result; None if the application took longer than brokers wait."""
        began = now_s()
        try:
            async with asyncio.timeout(CONSUME_S_MAX):
                is_done = await member.consume(record, broker_name)
        except TimeoutError:
            return None
        spent_ms = int((now_s() - began) * 1000)
        return request.answer(
            ResponseCode.SUCCESS,
            body=consumed_body(is_done, spent_ms, is_ordered=member.is_ordered),
        )

    def _check_transaction(self, request: Command, connection: Connection) -> None:
        record = decode(request.body)
        group = record.properties.get(PRODUCER_GROUP, "")
        on_check_back = self._producers.get(group)
        if on_check_back is None:
            log.warning(
                "check-back for a group that this client is not in: group=%s broker=%s",
                group,
                connection.peer_address,
            )
        else:
            on_check_back(CheckTransactionHeader.read(request.fields), record, connection)

    def _member(self, group: str) -> MemberCallbacks:
        member = self._consumers.get(group)
        if member is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this client is not in group {group}")
        return member
