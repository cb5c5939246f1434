"""Relays requests to consumers: GET_CONSUMER_RUNNING_INFO 307, CONSUME_MESSAGE_DIRECTLY 309.

See docs/protocol/administration.md#relays, docs/pitfalls.md#trap-70 and docs/pitfalls.md#trap-71.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roquet.broker.handlers.query import offset_in
from roquet.broker.metadata.members import Consumers
from roquet.errors import CallTimeout, ConnectionClosed, Refused
from roquet.protocol.headers.members import ConsumeDirectlyHeader, RunningInfoHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler

TIMEOUT_MS: Final = 10_000
"""How long the broker waits for the consumer's answer; admin tools wait longer for the broker's."""


class ClientProxy:
    """Relays requests to members of consumer groups, and returns their answers unchanged."""

    def __init__(self, consumers: Consumers[Connection], store: Store, broker_name: str) -> None:
        self._consumers = consumers
        self._store = store
        self._broker_name = broker_name

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def running_info(self, request: Command, connection: Connection) -> None:
        header = RunningInfoHeader.read(request.fields)
        channel = self._channel(header.consumer_group, header.client_id)
        asked = Command(request.code, dict(request.fields), request.body)
        connection.later.answer(request, relayed(channel, asked, request))

    def consume_directly(self, request: Command, connection: Connection) -> None:
        header = ConsumeDirectlyHeader.read(request.fields)
        channel = self._channel(header.consumer_group, header.client_id or "")
        fields = {**request.fields, "brokerName": self._broker_name}
        message = self._message(header.msg_id or "")
        # The message is kept in memory for this client, as an answer of its size would be.
        connection.dispatcher.made(len(message))
        asked = Command(request.code, fields, message)
        connection.later.answer(request, relayed(channel, asked, request), len(message))

    def _channel(self, group: str, client_id: str) -> Connection:
        channel = self._consumers.channel_of(group, client_id)
        if channel is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer {client_id} of group {group} is connected"
            )
        return channel

    def _message(self, message_id: str) -> bytes:
        message = self._store.log.record_at(offset_in(message_id))
        if message is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this broker has no message {message_id}")
        return message


async def relayed(channel: Connection, asked: Command, request: Command) -> Command:
    """Send `asked` to a client and return its answer as the answer to `request`.

    :raises Refused: the client did not answer in time, disconnected, or does not read.
    """
    try:
        answer = await channel.calls.ask(asked, TIMEOUT_MS)
    except CallTimeout as error:
        raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, str(error)) from error
    except ConnectionClosed as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return replace(answer, opaque=request.opaque, header_type=request.header_type)
