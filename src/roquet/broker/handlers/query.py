"""Finding messages: QUERY_MESSAGE 12, VIEW_MESSAGE_BY_ID 33.

See docs/pitfalls.md#trap-45, docs/pitfalls.md#trap-46 and docs/protocol/administration.md#query-by-key.
"""

from __future__ import annotations

from roquet.common.steps import Steps
from roquet.errors import Refused
from roquet.protocol.headers.offsets import ViewMessageHeader
from roquet.protocol.headers.query import QueryMessageAnswer, QueryMessageHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices


class QueryHandler:
    """Gives messages by their key or place.

    :param unique_key_max: how many records are looked at for a unique key, whatever the request says.
    :param count_max: for any key no more are given (`maxMsgsNumBatch`, docs/storage/index.md#how-a-search-goes).
    """

    def __init__(self, store: Store, unique_key_max: int, count_max: int, slices: Slices) -> None:
        self._slices = slices
        self._store = store
        self._unique_key_max = unique_key_max
        self._count_max = count_max

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self._slices.handler(self.by_key),
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_place,
        }

    def by_key(self, request: Command) -> Steps[Command]:
        """Hits are by the key's hash; the client looks at the keys themselves."""
        header = QueryMessageHeader.read(request.fields)
        wanted = self._unique_key_max if header.unique_key else header.max_num
        if wanted < 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"maxNum is {wanted}")
        count_max = min(wanted, self._count_max)
        begin_ms, end_ms = header.begin_timestamp, header.end_timestamp
        hits = yield from self._store.search_by_key(
            header.topic, header.key, count_max, begin_ms, end_ms
        )
        answer = QueryMessageAnswer(hits.last_ms, hits.last_at).write()
        if not hits.records:
            remark = "no message with this key in the time range, it may not be indexed yet"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, answer)
        return request.answer(ResponseCode.SUCCESS, None, answer, b"".join(hits.records))

    def by_place(self, request: Command, connection: Connection) -> Command:
        """Anybody may ask for any offset: only what the store takes for a record goes out."""
        at = ViewMessageHeader.read(request.fields).offset
        record = self._store.message_at(at)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message at physical offset {at}")
        return request.answer(ResponseCode.SUCCESS, body=record)
