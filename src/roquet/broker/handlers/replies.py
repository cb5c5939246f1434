"""Replies to messages: SEND_REPLY_MESSAGE 324 and 325, PUSH_REPLY_MESSAGE_TO_CLIENT 326.

The broker pushes a reply to the client that sent the request, over the connection of its producer
heartbeats, and stores it in the cluster's reply topic, too, unless `storeReplyMessageEnable` is
false.

See docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from roquet.broker.handlers.send import SendHandler
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.handlers.send_plan import encoded_opaque
from roquet.broker.metadata.members import Producers
from roquet.common.limited_log import LimitedLog
from roquet.errors import RoquetError
from roquet.protocol.headers.replies import PushReplyHeader
from roquet.protocol.headers.send import SendHeader
from roquet.protocol.records import message as m
from roquet.protocol.records.record import host_text
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, ONE_WAY, Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS: Final = 10_000
"""How long the broker waits for the requesting client to acknowledge a reply."""


class ReplyHandler:
    """Pushes replies to the clients that wait for them."""

    def __init__(
        self, send_context: SendContext, sends: SendHandler, producers: Producers[Connection]
    ) -> None:
        self._send_context = send_context
        self._sends = sends
        self._producers = producers
        self._stores = send_context.config.store_reply_message_enable
        self._limited_log = LimitedLog(log)

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(
            (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2), self.reply
        )

    def reply(self, request: Command, connection: Connection) -> None:
        header, _, queue_id = self._sends.planner.checked(request)
        connection.later.answer(request, self._reply(request, header, queue_id, connection))

    async def _reply(
        self, request: Command, header: SendHeader, queue_id: int, connection: Connection
    ) -> Answer:
        """Push the reply and store it. If the push fails, the answer is its error."""
        why_not = await self._push(request, header, queue_id, connection)
        if why_not:
            self._limited_log.warning(
                "reply",
                "reply not delivered to the client that waits for it: from=%s error=%s",
                connection.peer_address,
                why_not,
            )
            if self._stores:
                self._sends.send(replace(request, flag=request.flag | ONE_WAY), connection)
            return request.answer(ResponseCode.SYSTEM_ERROR, why_not)
        if self._stores:
            return self._sends.send(request, connection)
        return self._not_stored(request, queue_id)

    async def _push(
        self, request: Command, header: SendHeader, queue_id: int, connection: Connection
    ) -> str:
        """Push the reply to the client that waits for it.

        :returns: why the push failed; empty if it succeeded. The texts are Apache's where it has
            one.
        """
        pairs = m.split_properties(header.properties)
        client_id = pairs.get(m.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{m.REPLY_TO_CLIENT}] is null"
        channel = self._producers.channel_of(client_id)
        if channel is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        try:
            answer = await channel.calls.ask(
                self._pushed(request, header, queue_id, pairs, connection), PUSH_TIMEOUT_MS
            )
        except RoquetError as error:
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return ""

    def _pushed(
        self,
        request: Command,
        header: SendHeader,
        queue_id: int,
        pairs: dict[str, str],
        connection: Connection,
    ) -> Command:
        now_ms = self._send_context.now_ms()
        fields = PushReplyHeader(
            header.producer_group,
            header.topic,
            queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            host_text(connection.peer_host),
            host_text(self._send_context.store.config.store_host),
            now_ms,
            header.default_topic,
            header.default_topic_queue_nums,
            m.join_properties({**pairs, m.PUSH_REPLY_TIME: str(now_ms)}),
            header.reconsume_times,
            header.unit_mode,
        ).write()
        return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)

    def _not_stored(self, request: Command, queue_id: int) -> bytes:
        """The answer to a reply that is not stored: clients read all fields of a send's answer."""
        opaque, is_binary = encoded_opaque(request), request.header_type == BINARY
        return self._sends.executor.encode(opaque, b"0", b"%d" % queue_id, 0, binary=is_binary)
