"""Heartbeats: they register the groups of this client at the brokers every 30 s."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from roquet.client._net.member_calls import (
    QueueState,
    consumed_body,
    reset_offsets,
    running_info_body,
    status_body,
)
from roquet.client._net.name_servers import Call
from roquet.client._net.route_table import RouteTable
from roquet.client._net.tasks import Tasks, attempt, pause
from roquet.errors import AccessDenied, MessageError, Refused
from roquet.protocol.bodies.tables import ConsumerData, Heartbeat
from roquet.protocol.headers.members import (
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    UnregisterClientHeader,
)
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import PRODUCER_GROUP, MessageQueue
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

PERIOD_S: Final = 30.0
TIMEOUT_MS: Final = 3000
CONSUME_S_MAX: Final = 10.0
"""How long brokers wait for the result of a message that is consumed directly."""

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


class Heartbeats:
    """Sends heartbeats with all groups of this client, and unregisters them at the end.

    Heartbeats go to every broker process of every known route, but only to masters as long as the
    client has no consumers (docs/protocol/consuming.md#heartbeats).

    Invariant: no heartbeat is under way when a group is unregistered. Brokers handle the two
    requests in different threads; a heartbeat that is handled last would register a member that has
    left, and its queues would not be consumed.
    """

    def __init__(self, client_id: str, call: Call, routes: RouteTable) -> None:
        self._client_id = client_id
        self._call = call
        self._routes = routes
        self._producers: dict[str, AnswerCheck | None] = {}
        self._consumers: dict[str, GroupMember] = {}
        self._sending = asyncio.Lock()
        self._heartbeats = Tasks()
        self.due = routes.changed
        """Set to send heartbeats now."""
        self.handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
        }

    def join_as_producer(self, group: str, answer_check: AnswerCheck | None = None) -> None:
        """Add a producer group.

        :param answer_check: handles check-backs of the group.
        """
        self._producers[group] = answer_check
        self.due.set()

    def join_as_consumer(self, group: str, member: GroupMember) -> None:
        """Add a consumer group.

        :raises MessageError: this client is in the group already.
        """
        if group in self._consumers:
            raise MessageError(f"one client cannot be in group {group} twice: use another session")
        self._consumers[group] = member

    async def run(self) -> None:
        """Send heartbeats forever. One before its time is followed by a rebalance."""
        while True:
            early = await pause(self.due, PERIOD_S)
            await self.beat()
            for member in self._consumers.values() if early else ():
                member.wake()

    async def beat(self) -> list[AccessDenied]:
        """Send a heartbeat to the brokers of the known routes now.

        Failures are logged. Returns the errors of brokers that deny access. The heartbeat is
        finished even if the caller is cancelled.
        """
        denials: list[AccessDenied] = []
        await asyncio.shield(self._heartbeats.start(self._beat(denials), "heartbeat"))
        return denials

    async def _beat(self, denials: list[AccessDenied]) -> None:
        async with self._sending:
            if self._producers or self._consumers:
                body = dump_bytes(self._heartbeat().to_json())
                denials += await self._send_to_all(
                    lambda: Command(RequestCode.HEART_BEAT, body=body), "heartbeat"
                )

    def _heartbeat(self) -> Heartbeat:
        consumers = tuple(member.data() for member in self._consumers.values())
        return Heartbeat(self._client_id, tuple(sorted(self._producers)), consumers)

    async def _send_to_all(self, request: Callable[[], Command], what: str) -> list[AccessDenied]:
        addresses = sorted(at for at in self._routes.addresses() if self._consumers or at.is_master)
        denials: list[AccessDenied] = []

        async def send(address: str) -> None:
            try:
                checked(await self._call(address, request(), TIMEOUT_MS), address)
            except AccessDenied as denial:
                denials.append(denial)
                raise

        await asyncio.gather(
            *(
                attempt(lambda at=at: send(at.address), f"{what} to {at.address}")  # type: ignore[misc]
                for at in addresses
            )
        )
        return denials

    async def leave_as_producer(self, group: str) -> None:
        """Unregister a producer group."""
        async with self._sending:
            if group in self._producers:
                await self._unregister(
                    UnregisterClientHeader(self._client_id, producer_group=group)
                )
                self._producers.pop(group, None)

    async def leave_as_consumer(self, group: str) -> None:
        """Unregister a consumer group.

        The brokers notify the other members at once (docs/protocol/consuming.md#leaving).
        """
        async with self._sending:
            if group in self._consumers:
                await self._unregister(
                    UnregisterClientHeader(self._client_id, consumer_group=group)
                )
                self._consumers.pop(group, None)

    async def leave_all(self) -> None:
        """Unregister all groups."""
        for group in list(self._consumers):
            await self.leave_as_consumer(group)
        for group in sorted(self._producers):
            await self.leave_as_producer(group)
        await self._heartbeats.close()

    async def _unregister(self, header: UnregisterClientHeader) -> None:
        fields = header.write()
        await self._send_to_all(
            lambda: Command(RequestCode.UNREGISTER_CLIENT, dict(fields)), "unregistering"
        )

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
        body = running_info_body(member.data(), member.states(), member.started_ms)
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _consume_directly(self, request: Command, connection: Connection) -> None:
        header = ConsumeDirectlyHeader.read(request.fields)
        member, record = self._member(header.consumer_group), decode(request.body)
        connection.answer_later(
            request, self._consumed(request, member, record, header.broker_name or "")
        )

    async def _consumed(
        self, request: Command, member: GroupMember, record: Record, broker_name: str
    ) -> Command | None:
        """The answer with the result; None if the application took longer than brokers wait."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(CONSUME_S_MAX):
                is_done = await member.consume(record, broker_name)
        except TimeoutError:
            return None
        spent_ms = int((asyncio.get_running_loop().time() - began) * 1000)
        return request.answer(ResponseCode.SUCCESS, body=consumed_body(is_done, spent_ms))

    def _check_transaction(self, request: Command, connection: Connection) -> None:
        record = decode(request.body)
        group = record.properties.get(PRODUCER_GROUP, "")
        answer_check = self._producers.get(group)
        if answer_check is None:
            log.warning(
                "check-back for a group that this client is not in: group=%s broker=%s",
                group,
                connection.peer_address,
            )
        else:
            answer_check(CheckTransactionHeader.read(request.fields), record, connection)

    def _member(self, group: str) -> GroupMember:
        member = self._consumers.get(group)
        if member is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this client is not in group {group}")
        return member
