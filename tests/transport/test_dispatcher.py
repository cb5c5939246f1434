"""Requests are answered in order, by fast paths and handlers, in fair turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable

import pytest

from roquet.errors import ConnectionClosed, PeerError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import HEADER_SIZE_MAX, ONE_WAY, Command, decode
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from roquet.transport.server import Server
from tests.simulation.simulation import Simulation
from tests.transport.answering import ASK, LEARN, answer, connected, receive, remarks
from tests.transport.stub_transport import StubTransport

SERVER, CLIENT, PORT = "10.0.0.1", "10.0.0.2", 7000
LATER = 4
KIB = 1024


# answers


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "No space left on device"), ResponseCode.SYSTEM_ERROR),
        (Refused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
    ],
)
async def test_what_a_handler_raises_is_the_answer(error: Exception, code: ResponseCode) -> None:
    def fail(request: Command, connection: Connection) -> Answer:
        raise error

    connection = Connection({ASK: fail})
    transport = StubTransport(connection)
    receive(connection, [ASK, 99])
    codes = [decode(frame).code for frame in transport.take()]
    assert codes == [code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]


async def test_a_peer_that_breaks_the_protocol_is_not_answered_any_more() -> None:
    def fail(request: Command, connection: Connection) -> Answer:
        raise PeerError("odd bytes")

    connection = Connection({ASK: answer, LEARN: fail})
    transport = StubTransport(connection)
    receive(connection, [ASK, LEARN, ASK])
    assert transport.take() == []
    assert not connection.is_open


async def test_a_one_way_request_is_handled_and_not_answered() -> None:
    connection, transport = connected()
    connection.data_received(Command(LEARN, flag=ONE_WAY).encode())
    receive(connection, [ASK])
    assert remarks(transport) == ["fast"]


# turns


class StillLoop(asyncio.SelectorEventLoop):
    """Its clock is set by the test: a busy machine takes no time of a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s


def play(scene: Callable[[StillLoop], Coroutine[None, None, None]]) -> None:
    loop = StillLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scene(loop))


def test_a_large_read_is_answered_in_equal_parts_one_per_turn() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport = connected(is_server=True)
        receive(connection, [ASK] * 11, bytes(20 * KIB))
        sizes: list[int] = []
        while not connection.is_reading and len(sizes) < 11:
            sizes.append(len(transport.take()))
            assert connection.unanswered // (20 * KIB) == 11 - sum(sizes)
            await asyncio.sleep(0)
        sizes.append(len(transport.take()))
        assert sizes == [4, 4, 3]

    play(scene)


def test_a_large_read_of_one_request_ends_the_turn_too() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport = connected(is_server=True)
        receive(connection, [ASK], bytes(100 * KIB))
        assert len(transport.take()) == 1
        assert not connection.is_reading
        await asyncio.sleep(0)
        assert connection.is_reading

    play(scene)


def test_a_client_has_no_turns_since_it_has_to_read_on() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport = connected()
        receive(connection, [ASK] * 11, bytes(20 * KIB))
        assert connection.is_reading
        assert len(transport.take()) == 11

    play(scene)


def test_requests_that_take_long_are_answered_in_several_turns() -> None:
    """Each of them makes a file, say."""

    async def scene(loop: StillLoop) -> None:
        def slow(request: Command, connection: Connection) -> Answer:
            loop.now_s += 0.003
            return request.answer(0)

        connection = Connection({ASK: slow}, is_server=True)
        transport = StubTransport(connection)
        receive(connection, [ASK] * 7)
        sizes = [len(transport.take())]
        while not connection.is_reading and len(sizes) < 7:
            await asyncio.sleep(0)
            sizes.append(len(transport.take()))
        assert sizes == [2, 2, 2, 1]

    play(scene)


@pytest.mark.parametrize("is_server", [True, False])
def test_large_answers_end_a_turn_and_the_next_one_counts_anew(is_server: bool) -> None:
    async def scene(loop: StillLoop) -> None:
        def large(request: Command, connection: Connection) -> Answer:
            return request.answer(0, body=bytes(10 * KIB))

        peers = Peers(PeerLimits(answer_bytes_per_connection_max=80 * KIB))
        connection = Connection({ASK: large}, is_server=is_server, peers=peers)
        transport = StubTransport(connection)
        receive(connection, [ASK] * 5)
        sizes = [len(transport.take())]
        while connection.unanswered and len(sizes) < 5:
            await asyncio.sleep(0)
            sizes.append(len(transport.take()))
        assert sizes == [2, 2, 1]

    play(scene)


def test_requests_wait_while_the_peer_does_not_read_the_answers() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport = connected(is_server=True)
        receive(connection, [ASK] * 6, bytes(20 * KIB))
        transport.unread = 1
        assert len(transport.take()) == 3
        receive(connection, [ASK] * 6, bytes(20 * KIB))
        await asyncio.sleep(0)
        transport.take()
        for _ in range(3):
            await asyncio.sleep(0)
        assert transport.take() == []
        assert not connection.is_writable
        transport.read_all()
        await turns_until_reading(connection)
        assert connection.unanswered == 0

    play(scene)


def test_later_requests_wait_for_one_that_is_answered_in_order() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport, goes_on = in_order()
        receive(connection, [ASK, LATER, ASK])
        await asyncio.sleep(0)
        receive(connection, [ASK])
        assert (remarks(transport), connection.is_reading) == (["slow"], False)
        goes_on.set()
        await turns_until_reading(connection)
        assert remarks(transport) == ["later", "slow", "slow"]

    play(scene)


@pytest.mark.parametrize("is_server", [True, False])
def test_what_comes_while_requests_are_held_is_answered_after_them(is_server: bool) -> None:
    """A client's connection reads on, and a server's may bring one read that was under way."""

    async def scene(loop: StillLoop) -> None:
        connection, transport = numbering(is_server=is_server)
        receive_numbers(connection, range(5))
        receive_numbers(connection, range(5, 8))
        assert numbers(transport) == [0, 1], "large answers ended the turn"
        assert connection.is_reading is not is_server
        await turns_until_answered(connection)
        assert numbers(transport) == [2, 3, 4, 5, 6, 7]

    play(scene)


def test_what_comes_while_an_answer_in_order_is_under_way_waits_for_it() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport, goes_on = in_order()
        receive(connection, [LATER])
        assert not connection.is_reading
        receive(connection, [ASK])
        await asyncio.sleep(0)
        assert (remarks(transport), connection.is_reading) == ([], False)
        goes_on.set()
        await turns_until_reading(connection)
        assert remarks(transport) == ["later", "slow"]

    play(scene)


def test_no_more_is_read_when_the_last_held_request_is_answered_in_order() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, transport, goes_on = in_order()
        receive(connection, [ASK] * 3 + [LATER], bytes(40 * KIB))
        while not connection.later.kept:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (remarks(transport), connection.is_reading) == (["slow"] * 3, False)
        goes_on.set()
        await turns_until_reading(connection)
        assert remarks(transport) == ["later"]

    play(scene)


def test_frames_of_an_ended_turn_come_before_those_beyond_its_part() -> None:
    """Bytes end a turn after the second of four requests, and the answer of the first before it."""

    async def scene(loop: StillLoop) -> None:
        connection, transport = numbering(is_server=True, answer_size=40 * KIB)
        receive_numbers(connection, range(4), bytes(40 * KIB))
        await turns_until_answered(connection)
        assert numbers(transport) == [0, 1, 2, 3]

    play(scene)


def test_a_held_request_that_breaks_the_protocol_ends_the_connection() -> None:
    async def scene(loop: StillLoop) -> None:
        def fail(request: Command, connection: Connection) -> Answer:
            raise PeerError("odd bytes")

        connection = Connection({ASK: answer, LEARN: fail}, is_server=True)
        transport = StubTransport(connection)
        receive(connection, [ASK, LEARN], bytes(100 * KIB))
        assert remarks(transport) == ["slow"]
        await asyncio.sleep(0)
        assert (remarks(transport), connection.is_open) == ([], False)

    play(scene)


def test_held_requests_of_a_connection_that_is_closing_are_not_handled() -> None:
    async def scene(loop: StillLoop) -> None:
        handled: list[Command] = []

        def note(request: Command, connection: Connection) -> Answer:
            handled.append(request)
            return request.answer(0)

        connection = Connection({ASK: note}, is_server=True)
        transport = StubTransport(connection)
        receive(connection, [ASK] * 2, bytes(100 * KIB))
        transport.close()
        await asyncio.sleep(0)
        assert (len(handled), connection.unanswered > 0) == (1, True)
        transport.lose()
        assert connection.unanswered == 0, "they are in memory no more"

    play(scene)


def test_a_client_ends_a_connection_whose_peer_asks_and_reads_no_answers() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, _ = numbering(is_server=False)
        connection.pause_writing()
        for number in range(7):
            receive_numbers(connection, [number])
        assert connection.is_open
        receive_numbers(connection, [1])
        assert not connection.is_open

    play(scene)


def test_held_requests_count_at_once_for_the_limit_of_all_peers() -> None:
    async def scene(loop: StillLoop) -> None:
        connection, _ = numbering(is_server=True)
        before = connection.peers.requests.peak
        receive_numbers(connection, range(4), bytes(FRAME_SIZE_MAX // 5))
        assert connection.peers.requests.peak > before

    play(scene)


def test_requests_that_hold_the_loop_are_measured() -> None:
    async def scene(loop: StillLoop) -> None:
        def slow(request: Command, connection: Connection) -> Answer:
            loop.now_s += 0.06
            return request.answer(0)

        connection = Connection({ASK: slow}, is_server=True)
        StubTransport(connection)
        receive(connection, [ASK])
        watch = connection.peers.watch
        assert (watch.count, watch.max_ms) == (1, 60)

    play(scene)


# helpers


def numbering(*, is_server: bool, answer_size: int = 10 * KIB) -> tuple[Connection, StubTransport]:
    """A connection whose answers repeat the request's remark; a turn has 20 KiB of them."""

    def repeat(request: Command, connection: Connection) -> Answer:
        return request.answer(0, request.remark, body=bytes(answer_size))

    limits = PeerLimits(answer_bytes_per_connection_max=80 * KIB, request_bytes_max=FRAME_SIZE_MAX)
    connection = Connection({ASK: repeat}, is_server=is_server, peers=Peers(limits))
    return connection, StubTransport(connection)


def receive_numbers(connection: Connection, numbers: Iterable[int], body: bytes = b"") -> None:
    requests = [Command(ASK, {}, body, remark=str(number)) for number in numbers]
    connection.data_received(b"".join(request.encode() for request in requests))


def numbers(transport: StubTransport) -> list[int]:
    return [int(remark or -1) for remark in remarks(transport)]


def in_order() -> tuple[Connection, StubTransport, asyncio.Event]:
    """A server's connection; requests `LATER` are answered in order once the event is set."""
    goes_on = asyncio.Event()

    def later(request: Command, connection: Connection) -> None:
        async def work() -> Answer:
            await goes_on.wait()
            return request.answer(0, "later")

        connection.dispatcher.answer_in_order(request, work())

    connection = Connection({ASK: answer, LATER: later}, is_server=True)
    return connection, StubTransport(connection), goes_on


async def turns_until_answered(connection: Connection) -> None:
    for _ in range(100):
        if not connection.unanswered:
            return
        await asyncio.sleep(0)
    pytest.fail("requests are not answered")


async def turns_until_reading(connection: Connection) -> None:
    for _ in range(100):
        if connection.is_reading:
            return
        await asyncio.sleep(0)
    pytest.fail("nothing is read any more")


# limits


def test_a_request_with_too_large_a_header_ends_its_connection() -> None:
    async def ask(size: int) -> int:
        channels = Channels()
        text = "v" * (size - len(Command(ASK, {"a": ""}).encode()) + 8)
        try:
            return (await channels.call(f"{SERVER}:{PORT}", Command(ASK, {"a": text}), 1000)).code
        finally:
            await channels.close()

    def large(request: Command, connection: Connection) -> Command:
        return request.answer(ResponseCode.SUCCESS, fields={"a": "v" * 2 * HEADER_SIZE_MAX})

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({ASK: large}).listen("0.0.0.0", PORT))
        assert sim.host(CLIENT).call(lambda: ask(HEADER_SIZE_MAX)) == 0, (
            "an answer's header may be larger"
        )
        with pytest.raises(ConnectionClosed):
            sim.host(CLIENT).call(lambda: ask(HEADER_SIZE_MAX + 1))
