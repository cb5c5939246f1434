"""Requests that tasks answer: each is answered once, and none outlives its connection."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from roquet.errors import PeerError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import ONE_WAY, Command, decode
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from tests.transport.stub_transport import StubTransport

ASK = 2
KEPT_MAX = 4096


def connected() -> tuple[Connection, StubTransport]:
    peers = Peers(PeerLimits(answer_bytes_per_connection_max=KEPT_MAX))
    connection = Connection({}, is_server=True, peers=peers)
    return connection, StubTransport(connection)


def fails(error: Exception) -> Answer:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (Refused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION, "no"),
        (
            PeerError("odd bytes"),
            ResponseCode.SYSTEM_ERROR,
            "another client that was asked broke the protocol: odd bytes",
        ),
    ],
)
async def test_an_error_of_the_task_is_the_answer(
    error: Exception, code: ResponseCode, remark: str
) -> None:
    connection, transport = connected()

    async def work() -> Answer:
        return fails(error)

    await connection.later.answer(Command(ASK, opaque=7), work())
    (answer,) = [decode(frame) for frame in transport.take()]
    assert (answer.code, answer.remark, answer.opaque) == (code, remark, 7)
    assert connection.is_open


async def test_a_one_way_request_is_worked_on_and_not_answered() -> None:
    connection, transport = connected()
    done: list[int] = []

    async def work() -> Answer:
        done.append(1)
        return Command(0)

    await connection.later.answer(Command(ASK, flag=ONE_WAY), work())
    assert (done, transport.take()) == ([1], [])


async def test_what_waits_is_counted_bounded_and_released() -> None:
    connection, _ = connected()
    goes_on = asyncio.Event()

    async def work() -> Answer:
        await goes_on.wait()
        return None

    task = connection.later.answer(Command(ASK, {"name": "value"}, b"body"), work(), kept=KEPT_MAX)
    assert connection.unanswered == 1024 + KEPT_MAX + len("value") + len(b"body")
    with pytest.raises(Refused, match="wait for their answers already"):
        connection.later.answer(Command(ASK), work())
    goes_on.set()
    await task
    await asyncio.sleep(0)
    assert connection.unanswered == 0
    connection.later.keep(10)
    assert connection.unanswered == 10
    connection.later.release(10)


async def test_a_task_ends_with_its_connection() -> None:
    connection, transport = connected()
    task = connection.later.answer(Command(ASK), asyncio.Event().wait())  # type: ignore[arg-type]
    transport.lose()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert connection.unanswered == 0
    assert transport.take() == []


async def test_what_is_kept_counts_at_once_for_the_limit_of_all_peers() -> None:
    connection, _ = connected()
    size = connection.peers.requests.limit // 2
    connection.later.keep(size)
    assert connection.peers.requests.peak == size


async def test_nothing_is_kept_for_a_connection_that_has_ended() -> None:
    connection, transport = connected()
    transport.lose()
    connection.later.keep(KEPT_MAX)
    assert connection.later.kept == 0


async def test_a_client_ends_a_connection_whose_peer_reads_no_later_answers() -> None:
    peers = Peers(PeerLimits(answer_bytes_per_connection_max=KEPT_MAX))
    connection = Connection({}, peers=peers)
    transport = StubTransport(connection)
    connection.pause_writing()

    async def work() -> Answer:
        return Command(0, body=bytes(KEPT_MAX))

    await connection.later.answer(Command(ASK), work())
    assert (connection.is_open, transport.take()) == (False, [])


async def test_a_task_that_has_answered_is_kept_no_more() -> None:
    connection, _ = connected()

    async def work() -> Answer:
        return None

    task = connection.later.answer(Command(ASK), work())
    known = weakref.ref(task)
    await task
    del task
    await asyncio.sleep(0)
    gc.collect()
    assert known() is None
