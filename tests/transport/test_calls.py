"""Calls find their responses, and none waits for ever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from roquet.errors import CallTimeout, ConnectionClosed, Refused
from roquet.protocol.remoting.command import Command, decode
from roquet.transport.calls import Calls
from roquet.transport.connection import Connection
from tests.transport.stub_transport import StubTransport

ASK = 2


def connected(unread: int = 0) -> tuple[Connection, Calls, StubTransport]:
    connection = Connection({})
    return connection, connection.calls, StubTransport(connection, unread)


def respond(connection: Connection, *opaques: int) -> None:
    responses = [Command(0, opaque=opaque).answer(0) for opaque in opaques]
    connection.data_received(b"".join(response.encode() for response in responses))


async def waits(work: Awaitable[object]) -> asyncio.Future[object]:
    """Begin a call; its request is written when this returns."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_responses_find_their_calls_in_any_order() -> None:
    connection, calls, transport = connected()
    first = await waits(calls.call(Command(ASK), 1000))
    others = await waits(calls.call_all([Command(ASK), Command(ASK)], 1000))
    one, two, three = (decode(frame).opaque for frame in transport.take())
    respond(connection, three, one, two)
    assert (await first).opaque == one  # type: ignore[attr-defined]
    assert [answer.opaque for answer in await others] == [two, three]  # type: ignore[attr-defined]
    assert not calls.waiting


async def test_requests_that_begin_together_are_one_write() -> None:
    _, calls, transport = connected()
    waiting = calls.begin([Command(ASK) for _ in range(3)])
    assert len(transport.writes) == 1
    assert [decode(frame).opaque for frame in transport.take()] == list(calls.waiting)
    for future in waiting:
        future.cancel()


async def test_calls_of_one_turn_beside_one_under_way_are_one_write_in_their_order() -> None:
    connection, calls, transport = connected()
    alone = asyncio.ensure_future(calls.call(Command(ASK), 1000))
    others = [asyncio.ensure_future(calls.call(Command(ASK), 1000)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    calls.notify(Command(ASK))
    assert len(transport.writes) == 1
    await asyncio.sleep(0)
    assert len(transport.writes) == 2
    opaques = [decode(frame).opaque for frame in transport.take()]
    assert opaques == [1, 2, 3, 4, 5]
    respond(connection, *opaques)
    assert [(await call).opaque for call in (alone, *others)] == opaques[:4]


async def test_those_who_were_answered_by_one_read_call_again_in_one_write() -> None:
    connection, calls, transport = connected()

    async def call_twice() -> None:
        await calls.call(Command(ASK), 1000)
        await calls.call(Command(ASK), 1000)

    work = [asyncio.ensure_future(call_twice()) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    respond(connection, *(decode(frame).opaque for frame in transport.take()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    respond(connection, *(decode(frame).opaque for frame in transport.take()))
    await asyncio.gather(*work)


async def test_a_response_that_comes_too_late_is_ignored() -> None:
    connection, calls, transport = connected()
    with pytest.raises(CallTimeout, match=f"did not answer request {ASK} within 1 ms"):
        await calls.call(Command(ASK), 1)
    with pytest.raises(CallTimeout, match="did not answer 2 requests within 1 ms"):
        await calls.call_all([Command(ASK), Command(ASK)], 1)
    assert not calls.waiting
    respond(connection, *(decode(frame).opaque for frame in transport.take()))
    assert connection.is_open


async def test_each_call_ends_in_its_own_time_whatever_the_others_do() -> None:
    connection, calls, transport = connected()
    ended: list[int] = []
    began = asyncio.get_running_loop().time()

    async def call(timeout_ms: int) -> None:
        with suppress(CallTimeout):
            await calls.call(Command(ASK), timeout_ms)
            return
        ended.append(timeout_ms)
        assert asyncio.get_running_loop().time() - began >= (timeout_ms - 1) / 1000

    work = [await waits(call(timeout_ms)) for timeout_ms in (60_000, 60, 10, 30, 5000, 5001, 45)]
    opaques = [decode(frame).opaque for frame in transport.take()]
    respond(connection, opaques[4])
    work[5].cancel()
    await asyncio.wait(work[1:])
    assert sorted(ended) == [10, 30, 45, 60]
    assert list(calls.waiting) == opaques[:1]
    transport.lose()
    with pytest.raises(ConnectionClosed):
        await work[0]


async def test_a_call_ends_in_time_long_after_the_others_were_over() -> None:
    _, calls, _ = connected()
    for timeout_ms in (20, 1, 5):
        with pytest.raises(CallTimeout, match=f"within {timeout_ms} ms"):
            await calls.call(Command(ASK), timeout_ms)


async def test_a_call_that_is_cancelled_waits_no_more() -> None:
    _, calls, _ = connected()
    call = await waits(calls.call(Command(ASK), 1000))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not calls.waiting


async def test_a_call_that_is_cancelled_before_its_request_is_written_leaves_the_frames_whole() -> (
    None
):
    connection, calls, transport = connected()
    first = await waits(calls.call(Command(ASK), 1000))
    second = asyncio.ensure_future(calls.call(Command(ASK), 1000))
    third = asyncio.ensure_future(calls.call(Command(ASK), 1000))
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    second.cancel()
    await asyncio.wait([second])
    assert [decode(frame).opaque for frame in transport.take()] == [1, 2, 3]
    respond(connection, 1, 2, 3)
    await asyncio.gather(first, third)
    assert not calls.waiting


async def test_a_question_that_is_given_up_waits_no_more() -> None:
    connection, calls, _ = connected()
    request = Command(ASK)
    waiting = calls.begin_to_ask(request)
    calls.give_up(request)
    respond(connection, request.opaque)
    assert not waiting.done()
    assert not calls.waiting


async def test_all_calls_fail_when_the_connection_ends_and_later_ones_at_once() -> None:
    _, calls, transport = connected()
    waiting = [
        await waits(calls.call(Command(ASK), 1000)),
        await waits(calls.call_all([Command(ASK), Command(ASK)], 1000)),
    ]
    transport.lose()
    for each in waiting:
        with pytest.raises(ConnectionClosed, match="before it answered anything"):
            await each
    with pytest.raises(ConnectionClosed, match="50000 is closed"):
        await calls.call(Command(ASK), 1000)
    calls.notify(Command(ASK))
    assert len(transport.take()) == 3


async def test_a_peer_that_does_not_read_is_called_but_not_asked() -> None:
    _, calls, transport = connected(unread=1 << 30)
    with pytest.raises(Refused, match="does not read, 1073741824 bytes wait for it"):
        await calls.ask(Command(ASK), 1000)
    with pytest.raises(Refused):
        calls.begin_to_ask(Command(ASK))
    assert transport.take() == []
    with pytest.raises(CallTimeout):
        await calls.call(Command(ASK), 1)
    assert len(transport.take()) == 1


async def test_a_request_that_cannot_be_encoded_leaves_nothing_that_waits() -> None:
    complaints: list[str] = []

    def refuse(command: Command) -> bytes:
        raise ValueError("no such field")

    asyncio.get_running_loop().set_exception_handler(
        lambda _, told: complaints.append(told["message"])
    )
    connection = Connection({}, encode=refuse)
    transport = StubTransport(connection)
    calls = connection.calls
    for work in (calls.call(Command(ASK), 1000), calls.call_all([Command(ASK)], 1000)):
        with pytest.raises(ValueError, match="no such field"):
            await work
    assert not calls.waiting
    transport.lose()
    gc.collect()
    assert complaints == []
