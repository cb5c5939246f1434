"""Calls about one queue: its offsets, and a group's offset in it (codes 14, 15, 29 to 31).

All of them go to the master, and to a slave while there is no master.

See docs/protocol/consuming.md#offsets and docs/protocol/consuming.md#committing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from roquet.client._net.broker_calls import Choose
from roquet.client._net.routes import BrokerAddress, read_addresses
from roquet.client._net.session import Session
from roquet.errors import PeerError, Refused
from roquet.protocol.headers import Header
from roquet.protocol.headers.offsets import (
    OffsetAnswer,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateOffsetHeader,
)
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

H = TypeVar("H", bound=Header)


def answered(kind: type[H], response: Command, address: str) -> H:
    """The header fields of a response.

    :raises PeerError: a required field is missing.
    """
    try:
        return kind.read(response.fields)
    except Refused as refusal:
        raise PeerError(f"answer of {address}: {refusal.remark}") from None


def accepted(
    kind: type[H], response: Command, address: str, codes: Iterable[int] = (ResponseCode.SUCCESS,)
) -> H:
    """The header fields of a response with one of `codes`.

    :raises ResponseError: the response has another code.
    :raises PeerError: a required field is missing.
    """
    return answered(kind, checked(response, address, codes), address)


async def min_offset(
    session: Session, queue: MessageQueue, timeout_ms: int, choose: Choose = read_addresses
) -> int:
    """The offset of the oldest message in a queue; -1 if there never was a message."""
    header = QueueHeader(queue.topic, queue.queue_id, queue.broker_name)
    request = Command(RequestCode.GET_MIN_OFFSET, header.write())
    return await _offset(session, queue, request, timeout_ms, choose)


async def max_offset(
    session: Session, queue: MessageQueue, timeout_ms: int, choose: Choose = read_addresses
) -> int:
    """The offset that the next message of a queue will have."""
    header = QueueHeader(queue.topic, queue.queue_id, queue.broker_name)
    request = Command(RequestCode.GET_MAX_OFFSET, header.write())
    return await _offset(session, queue, request, timeout_ms, choose)


async def offset_at(
    session: Session, queue: MessageQueue, timestamp_ms: int, timeout_ms: int
) -> int:
    """The offset of the message whose store time (ms since 1970) is nearest to `timestamp_ms`."""
    header = SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms, queue.broker_name)
    request = Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header.write())
    return await _offset(session, queue, request, timeout_ms)


async def _offset(
    session: Session,
    queue: MessageQueue,
    request: Command,
    timeout_ms: int,
    choose: Choose = read_addresses,
) -> int:
    at, response = await session.brokers.call(queue, request, timeout_ms, choose)
    return accepted(OffsetAnswer, response, at.address).offset


async def committed(
    session: Session, group: str, queue: MessageQueue, timeout_ms: int
) -> int | None:
    """The offset of a group in a queue, or None if the broker has none.

    For a young queue brokers answer 0 instead of none (docs/pitfalls.md#trap-29).
    """
    fields = QueryOffsetHeader(group, queue.topic, queue.queue_id, queue.broker_name).write()
    request = Command(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    at, response = await session.brokers.call(queue, request, timeout_ms)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return accepted(OffsetAnswer, response, at.address).offset


async def commit(
    session: Session,
    group: str,
    queue: MessageQueue,
    current_offset: Callable[[], int],
    timeout_ms: int,
) -> tuple[BrokerAddress, int]:
    """Commit an offset, forwards or backwards; return the process that accepted it, and the offset.

    :param current_offset: returns the offset. It is called for each try, because pulls may have
        committed a higher offset while earlier tries waited for an answer.
    """

    async def commit_at(at: BrokerAddress) -> tuple[BrokerAddress, int]:
        offset = current_offset()
        fields = UpdateOffsetHeader(
            group, queue.topic, queue.queue_id, offset, queue.broker_name
        ).write()
        request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        checked(await session.call(at.address, request, timeout_ms), at.address)
        return at, offset

    async with session.first_commits.turn(group, queue):
        return await session.brokers.first(queue, commit_at)
