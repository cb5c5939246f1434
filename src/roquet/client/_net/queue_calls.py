"""Calls about one queue: its offsets, and a group's offset in it (codes 14, 15, 29 to 31, 43).

All of them go to the master, and to a slave while there is no master.

See docs/protocol/consuming.md#offsets and docs/protocol/consuming.md#committing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from roquet.client._net.broker_calls import BrokerCalls, Choose
from roquet.client._net.name_servers import Call
from roquet.client._net.routes import BrokerAddress, read_addresses
from roquet.errors import PeerError, Refused
from roquet.protocol.headers import Header
from roquet.protocol.headers.offsets import (
    OffsetAnswer,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateOffsetHeader,
)
from roquet.protocol.json.dialect import load
from roquet.protocol.json.numbers import as_int64
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

H = TypeVar("H", bound=Header)


def stored_offsets(body: bytes, group: str, topic: str) -> dict[int, int]:
    """The offsets of one group in one topic, by queue id, of a broker's table of all offsets.

    The table of a large broker has megabytes, so this entry alone is read.

    :raises ValueError: the body is no such table.
    """
    if b'"offsetTable"' not in body:
        raise ValueError("the table of consumer offsets has no offsetTable")
    key = re.escape(f"{topic}@{group}".encode())
    entry = re.search(rb'"%b"\s*:\s*(\{[^{}]*\})' % key, body)
    offsets = {} if entry is None else load(entry.group(1))
    return {int(queue_id): as_int64(offset) for queue_id, offset in offsets.items()}


def response_header(kind: type[H], response: Command, address: str) -> H:
    """The header fields of a response.

    :raises PeerError: a required field is missing.
    """
    try:
        return kind.read(response.fields)
    except Refused as refusal:
        raise PeerError(f"answer of {address}: {refusal.remark}") from None


def checked_header(
    kind: type[H], response: Command, address: str, codes: Iterable[int] = (ResponseCode.SUCCESS,)
) -> H:
    """The header fields of a response with one of `codes`.

    :raises ResponseError: the response has another code.
    :raises PeerError: a required field is missing.
    """
    return response_header(kind, checked(response, address, codes), address)


class QueueCalls:
    """Asks the brokers of queues for offsets, and commits those of groups.

    All methods raise as `BrokerCalls`, `ResponseError` if the broker refuses, and `PeerError` if
    its response lacks the offset.
    """

    def __init__(self, call: Call, brokers: BrokerCalls) -> None:
        self._call = call
        self._brokers = brokers
        self._first_commits: dict[tuple[str, str, str], asyncio.Event] = {}
        """Set when the first commit of a group at a broker in a topic is over."""

    async def min_offset(
        self, queue: MessageQueue, timeout_ms: int, choose: Choose = read_addresses
    ) -> int:
        """The offset of the oldest message in a queue; -1 if there never was a message."""
        header = QueueHeader(queue.topic, queue.queue_id, queue.broker_name)
        return await self._offset(RequestCode.GET_MIN_OFFSET, header, queue, timeout_ms, choose)

    async def max_offset(
        self, queue: MessageQueue, timeout_ms: int, choose: Choose = read_addresses
    ) -> int:
        """The offset that the next message of a queue will have."""
        header = QueueHeader(queue.topic, queue.queue_id, queue.broker_name)
        return await self._offset(RequestCode.GET_MAX_OFFSET, header, queue, timeout_ms, choose)

    async def offset_at(
        self,
        queue: MessageQueue,
        timestamp_ms: int,
        timeout_ms: int,
        choose: Choose = read_addresses,
    ) -> int:
        """The offset of the message whose store time (ms since 1970) is nearest."""
        header = SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms, queue.broker_name)
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await self._offset(code, header, queue, timeout_ms, choose)

    async def _offset(
        self,
        code: RequestCode,
        header: Header,
        queue: MessageQueue,
        timeout_ms: int,
        choose: Choose,
    ) -> int:
        request = Command(code, header.write())
        at, response = await self._brokers.call(queue, request, timeout_ms, choose)
        return checked_header(OffsetAnswer, response, at.address).offset

    async def committed(self, group: str, queue: MessageQueue, timeout_ms: int) -> int | None:
        """The offset of a group in a queue, or None if the broker has none.

        For a young queue brokers answer 0 instead of none (docs/pitfalls.md#trap-29).
        """
        fields = QueryOffsetHeader(group, queue.topic, queue.queue_id, queue.broker_name).write()
        request = Command(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        at, response = await self._brokers.call(queue, request, timeout_ms)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return checked_header(OffsetAnswer, response, at.address).offset

    async def stored(
        self, group: str, topic_queue: MessageQueue, timeout_ms: int
    ) -> dict[int, int]:
        """The offsets of a group that a broker has stored in a topic, by queue id.

        Only this tells a stored 0 from the 0 that `committed` is answered for a young queue.

        :param topic_queue: any queue of the topic at that broker.
        """
        request = Command(RequestCode.GET_ALL_CONSUMER_OFFSET)
        at, response = await self._brokers.call(topic_queue, request, timeout_ms)
        try:
            return stored_offsets(checked(response, at.address).body, group, topic_queue.topic)
        except ValueError as error:
            raise PeerError(f"answer of {at.address}: {error}") from None

    async def commit(
        self,
        group: str,
        queue: MessageQueue,
        current_offset: Callable[[], int],
        timeout_ms: int,
    ) -> tuple[BrokerAddress, int]:
        """Commit an offset, forwards or backwards; return the process that accepted it, and it.

        :param current_offset: returns the offset. It is called for each try, because pulls may
            have committed a higher offset while earlier tries waited for an answer.
        """

        async def commit_at(at: BrokerAddress) -> tuple[BrokerAddress, int]:
            offset = current_offset()
            fields = UpdateOffsetHeader(
                group, queue.topic, queue.queue_id, offset, queue.broker_name
            ).write()
            request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            checked(await self._call(at.address, request, timeout_ms), at.address)
            return at, offset

        async with self._after_first_commit(group, queue):
            return await self._brokers.first(queue, commit_at)

    @asynccontextmanager
    async def _after_first_commit(self, group: str, queue: MessageQueue) -> AsyncIterator[None]:
        """Wait for the first commit of the group at this broker in this topic, or be the first.

        If two commits come at the same time and Apache's broker (4.9.7) has no offset of the group
        in the topic yet, it may lose one of them, although it has answered both.
        """
        key = group, queue.broker_name, queue.topic
        over = self._first_commits.get(key)
        if over is not None:
            await over.wait()
            yield
            return
        over = self._first_commits[key] = asyncio.Event()
        try:
            yield
        finally:
            over.set()
