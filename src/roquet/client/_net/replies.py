"""Requests that wait for a reply.

See docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from roquet.client.received import MessageSource, ReceivedMessage
from roquet.common.runtime import Runtime
from roquet.errors import MessageError
from roquet.protocol.headers.replies import PushReplyHeader
from roquet.protocol.records import message as m
from roquet.protocol.records.namespace import Namespace
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler

log = logging.getLogger(__name__)


class Replies:
    """The requests that wait for a reply, by their correlation ids.

    The first reply to a request is taken; further ones are dropped.
    """

    def __init__(self, runtime: Runtime, names: Namespace) -> None:
        self._runtime = runtime
        self._names = names
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self.handlers: Mapping[int, Handler] = {
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._arrived
        }

    @contextmanager
    def expect(self) -> Iterator[tuple[str, asyncio.Future[ReceivedMessage]]]:
        """Make a correlation id; yield it and the future of its reply. It ends with the block."""
        correlation_id = str(uuid.UUID(int=self._runtime.random.getrandbits(128), version=4))
        reply = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        try:
            yield correlation_id, reply
        finally:
            del self._waiting[correlation_id]

    def _arrived(self, request: Command, connection: Connection) -> Command:
        """Handle a reply. One that no request waits for is answered with SUCCESS, too.

        Its sender could do nothing about it.
        """
        header = PushReplyHeader.read(request.fields)
        pairs = m.split_properties(header.properties) | {m.ARRIVE_TIME: str(self._runtime.now_ms())}
        waiting = self._waiting.get(pairs.get(m.CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            log.info(
                "reply dropped, no request waits for it: broker=%s correlation_id=%s",
                connection.peer_address,
                pairs.get(m.CORRELATION_ID, ""),
            )
            return request.answer(ResponseCode.SUCCESS)
        try:
            waiting.set_result(reply_message(header, pairs, request.body, self._names))
        except MessageError as error:
            waiting.set_exception(error)
        return request.answer(ResponseCode.SUCCESS)


def reply_message(
    header: PushReplyHeader, pairs: Mapping[str, str], body: bytes, names: Namespace
) -> ReceivedMessage:
    """A reply as `Producer.request` returns it.

    Where it is stored is not known here: its offsets are -1, its hosts and its broker empty.

    :raises MessageError: the body cannot be decompressed.
    """
    record = Record(
        header.queue_id,
        header.flag,
        -1,
        -1,
        header.sys_flag,
        header.born_timestamp,
        b"",
        header.store_timestamp,
        b"",
        header.reconsume_times,
        0,
        body,
        header.topic,
        m.join_properties(pairs),
    )
    message = ReceivedMessage(record, MessageSource(names=names), header.reconsume_times)
    _ = message.body  # decoded here: `Producer.request` raises what is wrong with it
    return message


def reply_properties(request: ReceivedMessage) -> tuple[str, dict[str, str]]:
    """The topic and the system properties of a reply to `request`.

    :raises MessageError: `request` asks for no reply, or does not name the cluster.
    """
    pairs = request.properties
    if m.REPLY_TO_CLIENT not in pairs or m.CORRELATION_ID not in pairs:
        raise MessageError(
            f"message {request.message_id} asks for no reply: "
            "it was sent by `send`, not by `request`"
        )
    cluster = pairs.get(m.CLUSTER)
    if cluster is None:
        raise MessageError(
            f"message {request.message_id} has no property {m.CLUSTER}: "
            "the topic of the reply is not known"
        )
    kept = {
        name: pairs[name] for name in (m.CORRELATION_ID, m.REPLY_TO_CLIENT, m.TTL) if name in pairs
    }
    return m.reply_topic(cluster), {**kept, m.MSG_TYPE: "reply"}
