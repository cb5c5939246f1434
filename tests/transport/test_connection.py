"""One connection by itself; tests/integration has what needs a real one."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from roquet.errors import ConnectionClosed
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from tests.transport.answering import ASK, FAST_PATHS, LEARN, answer, learn, receive
from tests.transport.stub_transport import StubTransport


async def test_nothing_refers_to_a_connection_that_ended() -> None:
    """Cycles would stay for a day: `common.memory`."""
    connection = Connection({LEARN: learn, ASK: answer}, is_server=True, fast_paths=FAST_PATHS)
    transport = StubTransport(connection)
    receive(connection, [ASK, LEARN, ASK])
    task = connection.later.answer(Command(ASK), asyncio.Event().wait())  # type: ignore[arg-type]
    (waiting,) = connection.calls.begin([Command(ASK)])
    call = asyncio.ensure_future(connection.calls.call(Command(ASK), 60_000))
    await asyncio.sleep(0)
    connection.pause_writing()
    connection.when_writable(connection.close)
    gc.collect()
    gc.disable()
    try:
        transport.lose()
        with pytest.raises(ConnectionClosed):
            await waiting
        with pytest.raises(ConnectionClosed):
            await call
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        left = ref(connection)
        del connection, transport, waiting, call, task
        assert left() is None
    finally:
        gc.enable()


async def test_a_connection_that_is_one_too_many_is_aborted_and_nobody_is_told() -> None:
    peers = Peers(PeerLimits(connections_per_address_max=1))
    told: list[str] = []

    def connect() -> StubTransport:
        return StubTransport(
            Connection(
                {},
                lambda each: told.append("open"),
                lambda each: told.append("closed"),
                is_server=True,
                peers=peers,
            )
        )

    first, second = connect(), connect()
    assert (first.is_closed, second.is_closed) == (False, True)
    second.lose()
    first.lose()
    assert told == ["open", "closed"]
    assert not peers.connections
