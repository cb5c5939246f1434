"""Finds messages: QUERY_MESSAGE 12, VIEW_MESSAGE_BY_ID 33.

See docs/pitfalls.md#trap-45, docs/pitfalls.md#trap-46 and
docs/protocol/administration.md#query-by-key.
"""

from __future__ import annotations

from roquet.common.steps import Steps
from roquet.errors import MessageError, Refused
from roquet.protocol.headers.admin import QueryMessageAnswer, QueryMessageHeader
from roquet.protocol.headers.offsets import ViewMessageHeader
from roquet.protocol.records.message import parse_offset_message_id
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices


class QueryHandler:
    """Finds messages by key or by physical offset.

    :param unique_key_max: messages returned at most for a unique key; the request's `maxNum` is not
        used then.
    :param count_max: messages returned at most for any key (`maxMsgsNumBatch`,
        docs/storage/index.md#how-a-search-works).
    """

    def __init__(self, store: Store, unique_key_max: int, count_max: int, slices: Slices) -> None:
        self._slices = slices
        self._store = store
        self._unique_key_max = unique_key_max
        self._count_max = count_max

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self._slices.handler(self.by_key),
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset,
        }

    def by_key(self, request: Command) -> Steps[Command]:
        """Find messages whose key has the same hash; the client compares the keys themselves."""
        header = QueryMessageHeader.read(request.fields)
        wanted = self._unique_key_max if header.unique_key else header.max_num
        if wanted < 0:
            remark = f"maxNum is {wanted}: it must not be negative"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        count_max = min(wanted, self._count_max)
        begin_ms, end_ms = header.begin_timestamp, header.end_timestamp
        hits = yield from self._store.search_by_key(
            header.topic, header.key, count_max, begin_ms, end_ms
        )
        answer = QueryMessageAnswer(hits.last_ms, hits.last_at).write()
        if not hits.records:
            remark = "no message with this key is in the time range, or it is not indexed yet"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, answer)
        return request.answer(ResponseCode.SUCCESS, None, answer, b"".join(hits.records))

    def by_offset(self, request: Command, _: Connection) -> Command:
        """Return the message at a physical offset."""
        offset = ViewMessageHeader.read(request.fields).offset
        return request.answer(ResponseCode.SUCCESS, body=message_at(self._store, offset))


def message_at(store: Store, offset: int) -> bytes:
    """The record at the physical offset that a client names.

    A client may name any offset: `record_at` returns only bytes that are a valid record.

    :raises Refused: there is none.
    """
    record = store.log.record_at(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no message at physical offset {offset}")
    return record


def offset_in(message_id: str) -> int:
    """The physical offset in an offset message id.

    :raises Refused: `message_id` is none.
    """
    try:
        return parse_offset_message_id(message_id)[2]
    except MessageError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
