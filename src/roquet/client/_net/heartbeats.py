"""Which groups this client is in, told to the brokers: a heartbeat each 30 s, a good-bye at the end."""

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
from roquet.transport.connection import Connection, Handler, checked

log = logging.getLogger(__name__)

PERIOD_S: Final = 30.0
TIMEOUT_MS: Final = 3000
CONSUME_S_MAX: Final = 10.0
"""So long brokers wait for a message that is to be consumed directly."""

AnswerCheck: TypeAlias = Callable[[CheckTransactionHeader, Record, Connection], None]
"""Takes a broker's question: which transaction, the message, and the connection to answer on."""


@dataclass(frozen=True)
class GroupMember:
    """A consumer of this client, as its session sees it.

    `data` gives what heartbeats say of it, `wake` is told when the group's members changed, `reset` to go on at other
    offsets, `states` tells how it stands with its queues, `consume` hands a message of a broker to the application
    beside all others and tells whether that dealt with it.
    """

    data: Callable[[], ConsumerData]
    wake: Callable[[], None]
    reset: Callable[[Mapping[MessageQueue, int]], None]
    states: Callable[[], Mapping[MessageQueue, QueueState]]
    consume: Callable[[Record, str], Awaitable[bool]]
    started_ms: int


class Heartbeats:
    """Keeps: every broker process of every known route hears of all groups of this client; only masters do as long as
    there are no consumers (docs/protocol/consuming.md#heartbeats). No heartbeat is under way when a good-bye leaves:
    brokers handle the two in different threads, and after a heartbeat that came last they would keep queues for a
    member that is gone.
    """

    def __init__(self, client_id: str, call: Call, routes: RouteTable) -> None:
        self._client_id = client_id
        self._call = call
        self._routes = routes
        self._producers: dict[str, AnswerCheck | None] = {}
        self._consumers: dict[str, GroupMember] = {}
        self._telling = asyncio.Lock()
        self._heartbeats = Tasks()
        self.due = routes.changed
        """Set when brokers are to hear of this client now."""
        self.handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
        }

    def join_as_producer(self, group: str, answer_check: AnswerCheck | None = None) -> None:
        """:param answer_check: takes what brokers ask about transactions of the group."""
        self._producers[group] = answer_check
        self.due.set()

    def join_as_consumer(self, group: str, member: GroupMember) -> None:
        """:raises MessageError: this client is in that group already."""
        if group in self._consumers:
            raise MessageError(f"one client cannot be in group {group} twice: use another session")
        self._consumers[group] = member

    async def run(self) -> None:
        """Heartbeats, for ever; those that are due before their time are followed by a new division of queues."""
        while True:
            early = await pause(self.due, PERIOD_S)
            await self.beat()
            for member in self._consumers.values() if early else ():
                member.wake()

    async def beat(self) -> list[AccessDenied]:
        """Tell the brokers of the known routes now; those that cannot be told are logged. Gives what those said that
        do not let us in.

        It is told to the end when whoever waits for it is cancelled.
        """
        denials: list[AccessDenied] = []
        await asyncio.shield(self._heartbeats.start(self._beat(denials), "heartbeat"))
        return denials

    async def _beat(self, denials: list[AccessDenied]) -> None:
        async with self._telling:
            if self._producers or self._consumers:
                body = dump_bytes(self._heartbeat().to_json())
                denials += await self._tell_all(
                    lambda: Command(RequestCode.HEART_BEAT, body=body), "heartbeat"
                )

    def _heartbeat(self) -> Heartbeat:
        consumers = tuple(member.data() for member in self._consumers.values())
        return Heartbeat(self._client_id, tuple(sorted(self._producers)), consumers)

    async def _tell_all(self, request: Callable[[], Command], what: str) -> list[AccessDenied]:
        addresses = sorted(at for at in self._routes.addresses() if self._consumers or at.is_master)
        denials: list[AccessDenied] = []

        async def tell(address: str) -> None:
            try:
                checked(await self._call(address, request(), TIMEOUT_MS), address)
            except AccessDenied as denial:
                denials.append(denial)
                raise

        await asyncio.gather(
            *(
                attempt(lambda at=at: tell(at.address), f"{what} to {at.address}")  # type: ignore[misc]
                for at in addresses
            )
        )
        return denials

    async def leave_as_producer(self, group: str) -> None:
        async with self._telling:
            if group in self._producers:
                await self._say_good_bye(
                    UnregisterClientHeader(self._client_id, producer_group=group)
                )
                self._producers.pop(group, None)

    async def leave_as_consumer(self, group: str) -> None:
        """The brokers tell the others of the group at once (docs/protocol/consuming.md#leaving)."""
        async with self._telling:
            if group in self._consumers:
                await self._say_good_bye(
                    UnregisterClientHeader(self._client_id, consumer_group=group)
                )
                self._consumers.pop(group, None)

    async def leave_all(self) -> None:
        for group in list(self._consumers):
            await self.leave_as_consumer(group)
        for group in sorted(self._producers):
            await self.leave_as_producer(group)
        await self._heartbeats.close()

    async def _say_good_bye(self, header: UnregisterClientHeader) -> None:
        fields = header.write()
        await self._tell_all(
            lambda: Command(RequestCode.UNREGISTER_CLIENT, dict(fields)), "good-bye"
        )

    def _members_changed(self, request: Command, _: Connection) -> None:
        member = self._consumers.get(ConsumerGroupHeader.read(request.fields).consumer_group)
        if member is not None:
            member.wake()

    def _reset_offsets(self, request: Command, connection: Connection) -> None:
        member = self._consumers.get(request.fields.get("group", ""))
        offsets = reset_offsets(request.body)
        log.info("%s sets %s back to %s", connection.peer_address, request.fields, offsets)
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
        """None when the application takes longer than who asks will wait."""
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
                "%s asks for a transaction of %s, which is none of ours",
                connection.peer_address,
                group,
            )
        else:
            answer_check(CheckTransactionHeader.read(request.fields), record, connection)

    def _member(self, group: str) -> GroupMember:
        member = self._consumers.get(group)
        if member is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this client is not in group {group}")
        return member
