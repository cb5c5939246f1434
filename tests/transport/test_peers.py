"""Peers that do not read, send half, or come in crowds: each ends in its time, and others are
served meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import uvloop

from roquet.common import descriptors
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command, decode
from roquet.transport import loop_watchdog
from roquet.transport.channels import Channels
from roquet.transport.limits import PeerLimits
from roquet.transport.server import Server
from tests.transport.crowd import ECHO, KERNEL, LATER, MIB, Crowd, asks, half_frame, until

Play = Callable[[PeerLimits, Callable[[Crowd], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a scene at a server with these limits, on one of the two loops."""

    def run(limits: PeerLimits, scene: Callable[[Crowd], Awaitable[None]]) -> None:
        async def whole() -> None:
            crowd = Crowd(
                replace(limits, loop_delay_warning_ms=0)
            )  # a machine that is busy is none of these scenes
            await crowd.start()
            try:
                async with asyncio.timeout(20):
                    await scene(crowd)
            finally:
                await crowd.stop()

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(whole())

    return run


def impatient(**limits: float) -> PeerLimits:
    """Fractions of a second, or what is given."""
    times: dict[str, float] = {
        "server_channel_max_idle_time_seconds": 0.2,
        "partial_request_timeout": 200,
    }
    return PeerLimits(**{**times, **limits})  # type: ignore[arg-type]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """All lines about connections but those that a busy machine makes the watch of the event loop
    write; a client of another test may still be about in this process."""
    lines = (record for record in caplog.records if record.name.startswith("roquet.transport."))
    return [record.getMessage() for record in lines if record.name != loop_watchdog.log.name]


async def echoes(crowd: Crowd, peer: socket.socket) -> bool:
    await crowd.say(peer, Command(ECHO, opaque=77, body=b"well").encode())
    return decode(await crowd.answer(peer)).body == b"well"


def test_a_peer_that_asks_and_never_reads_is_ended_by_time(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        await crowd.say(peer, asks(MIB, 40))
        await until(lambda: bool(crowd.server.connections))
        await until(lambda: not crowd.server.connections)
        assert crowd.peers.figures()["answerBytes"] == "0"

    play(impatient(), scene)
    assert "the peer does not read" in caplog.text


def test_what_is_sent_to_it_meanwhile_does_not_keep_it(play: Play) -> None:
    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        await crowd.say(peer, asks(KERNEL))
        await until(lambda: any(answers for answers, _ in crowd.held))
        (connection,) = crowd.server.connections

        def is_ended() -> bool:
            connection.calls.notify(Command(ECHO))
            return not crowd.server.connections

        await until(is_ended)
        assert crowd.peers.ended == 1

    play(impatient(), scene)


def test_a_silent_connection_is_ended_and_nobody_is_told(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        await crowd.join()
        await until(lambda: bool(crowd.server.connections))
        await until(lambda: not crowd.server.connections)

    play(impatient(), scene)
    assert not told(caplog)


def test_a_caller_ends_a_connection_whose_server_does_not_read(
    monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    async def scene(crowd: Crowd) -> None:
        deaf = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        monkeypatch.setattr("roquet.transport.channels.CALLER", impatient(answer_bytes_max=1 << 62))
        channels = Channels()
        connection = await channels.connection(address)
        connection.calls.notify(Command(ECHO, body=bytes(KERNEL)))
        await until(lambda: not connection.is_open)
        assert await channels.connection(address) is not connection, (
            "the next call opens another one"
        )
        await channels.close()
        deaf.close()

    play(impatient(), scene)


@pytest.mark.parametrize("before", [[], [10] * 400])
def test_no_more_answers_are_made_than_may_wait(play: Play, before: list[int]) -> None:
    """Be it that the connection's requests were for little so far."""

    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        for size in before:
            await crowd.say(peer, asks(size))
            await crowd.answer(peer)
        await crowd.say(peer, asks(MIB, 200))
        other = await crowd.join()
        for _ in range(20):
            assert await echoes(crowd, other)
            crowd.peers.look()
        assert 0 < crowd.peers.answers.peak <= 3 * MIB

    play(PeerLimits(), scene)


def test_one_that_reads_again_gets_all_its_answers(play: Play) -> None:
    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join(receive_buffer=MIB)
        await crowd.say(peer, asks(MIB, 30))
        await until(lambda: any(answers for answers, _ in crowd.held))
        opaques = [decode(await crowd.answer(peer)).opaque for _ in range(30)]
        assert opaques == list(range(30))
        assert await echoes(crowd, peer)

    play(PeerLimits(), scene)


def test_with_half_of_the_memory_in_use_each_gets_less_ahead(play: Play) -> None:
    async def scene(crowd: Crowd) -> None:
        other, early = await crowd.join(), await crowd.join()
        while crowd.peers.unread_max == 4 * MIB:
            await crowd.say(await crowd.join(), asks(KERNEL))
            assert await echoes(crowd, other)
            crowd.peers.look()
        assert crowd.peers.ended == 0
        crowd.peers.look()
        before = crowd.peers.answers.size
        for _ in range(40):
            await crowd.say(early, asks(256 * 1024))
            assert await echoes(crowd, other)
        crowd.peers.look()
        assert crowd.peers.answers.size <= before + MIB
        for each in crowd.sockets[2:]:
            each.close()
        await until(lambda: len(crowd.server.connections) == 2)
        crowd.peers.look()
        assert crowd.peers.unread_max == 4 * MIB

    play(PeerLimits(answer_bytes_max=64 * MIB), scene)


def test_beyond_the_memory_for_answers_those_end_that_hold_most_and_stand_still(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        other = await crowd.join()
        for _ in range(12):
            await crowd.say(await crowd.join(), asks(KERNEL))
            assert await echoes(crowd, other)
        await until(lambda: crowd.peers.ended > 0)
        assert await echoes(crowd, other)
        crowd.peers.look()
        assert crowd.peers.answers.size <= 24 * MIB
        assert crowd.peers.answers.peak <= 24 * MIB + KERNEL + MIB

    play(PeerLimits(answer_bytes_max=24 * MIB), scene)
    (line,) = told(caplog)
    assert "answerBytesMax=25165824" in line
    assert "freed=" in line


def test_half_frames_of_all_are_bounded_and_the_oldest_end(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        other = await crowd.join()
        halves = [await crowd.join() for _ in range(10)]
        for peer in halves:
            await crowd.say(peer, half_frame(8 * MIB, 3 * MIB))
            assert await echoes(crowd, other)
        await until(lambda: crowd.peers.ended > 0)
        crowd.peers.look()
        assert crowd.peers.requests.size <= 16 * MIB
        assert crowd.peers.requests.peak <= 20 * MIB
        assert await echoes(crowd, other)

    play(PeerLimits(request_bytes_max=16 * MIB), scene)
    assert "requestBytesMax=16777216" in caplog.text


def test_a_frame_that_grows_by_a_byte_now_and_then_is_ended(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        await crowd.say(peer, half_frame(2000, 100))
        await until(lambda: bool(crowd.server.connections))
        while crowd.server.connections:
            with suppress(OSError):
                await crowd.say(peer, b"x")
            await asyncio.sleep(0.002)
        await until(lambda: not crowd.server.connections)

    play(impatient(server_channel_max_idle_time_seconds=60.0), scene)
    assert "a request stays incomplete" in caplog.text


def test_a_slow_honest_sender_may_take_the_time_its_size_needs(play: Play) -> None:
    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        frame = Command(ECHO, opaque=1, body=bytes(64 * 1024)).encode()
        began = asyncio.get_running_loop().time()
        for at in range(0, len(frame), 4096):
            await crowd.say(peer, frame[at : at + 4096])
            await asyncio.sleep(0.03)
        assert asyncio.get_running_loop().time() - began > 0.2
        assert len(decode(await crowd.answer(peer)).body) == 64 * 1024

    play(impatient(), scene)


def test_a_frame_beyond_what_one_connection_may_send_ends_it(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        for _ in range(50):
            await crowd.say(await crowd.join(), half_frame(MIB + 1, 10))
        await until(lambda: len(crowd.ended) == 50)

    play(PeerLimits(request_bytes_per_connection_max=MIB), scene)
    (line,) = told(caplog)
    assert "broke the protocol" in line


def test_a_peer_that_breaks_the_protocol_and_does_not_read_is_not_waited_for(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.transport.wire.END_S", 0.02)

    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        await crowd.say(peer, asks(2 * KERNEL))
        await until(lambda: any(answers for answers, _ in crowd.held))
        await crowd.say(peer, b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: len(crowd.ended) == 1)
        assert crowd.peers.ended == 1

    play(PeerLimits(answer_bytes_per_connection_max=64 * MIB), scene)


def test_requests_whose_answers_come_later_are_bounded_and_the_peer_is_told(play: Play) -> None:
    async def scene(crowd: Crowd) -> None:
        peer = await crowd.join()
        requests = [Command(LATER, opaque=opaque, body=bytes(MIB)).encode() for opaque in range(6)]
        await crowd.say(peer, b"".join(requests))
        refused = [decode(await crowd.answer(peer)) for _ in range(2)]
        assert [answer.code for answer in refused] == [ResponseCode.SYSTEM_BUSY] * 2
        assert "bytes of requests of" in (refused[0].remark or "")
        ((unread, waiting),) = crowd.held
        assert unread == 0
        assert waiting // MIB == 4
        crowd.later.set()
        assert [decode(await crowd.answer(peer)).code for _ in range(4)] == [0] * 4
        assert crowd.held == [(0, 0)]

    play(PeerLimits(), scene)


def test_connections_of_one_address_are_bounded_where_that_is_asked_for(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(crowd: Crowd) -> None:
        first = await crowd.join()
        assert await echoes(crowd, first)
        for _ in range(30):
            await crowd.join()
        await until(lambda: crowd.peers.refused == 28)
        assert await echoes(crowd, first)
        assert len(crowd.server.connections) == 3
        first.close()
        await until(lambda: len(crowd.server.connections) == 2)
        assert await echoes(crowd, await crowd.join())
        assert not [each for each in crowd.ended if each.peer_address == ""]

    play(PeerLimits(connections_per_address_max=3), scene)
    (line,) = told(caplog)
    assert "connectionsPerAddressMax=3" in line


@pytest.mark.skipif(
    sys.platform != "linux", reason="127.0.0.2 is an address of its own on Linux only"
)
def test_an_address_that_has_all_connections_gives_some_to_others(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own that were silent for longest; it cannot take them back, and neither can the others
    take all.
    """

    async def scene(crowd: Crowd) -> None:
        crowd.peers.connections_max = 4
        taken = [await crowd.join(source="127.0.0.2") for _ in range(4)]
        for peer in taken:
            assert await echoes(crowd, peer)
        for peer in taken[1:]:
            assert await echoes(crowd, peer)
        other = await crowd.join()
        assert await echoes(crowd, other)
        assert taken[0].recv(1) == b""
        for _ in range(3):
            await crowd.join(source="127.0.0.2")
        await until(lambda: crowd.peers.refused == 3)
        again = [await crowd.join() for _ in range(3)]
        await until(lambda: crowd.peers.refused == 5)
        assert await echoes(crowd, again[0])
        for peer in (other, *taken[2:]):
            assert await echoes(crowd, peer)
        assert len(crowd.server.connections) == len(crowd.peers.connections) == 4

    play(PeerLimits(), scene)
    lines = [line for line in caplog.messages if "connectionsMax=4" in line]
    assert [line.split(" peer=")[0] for line in lines] == [
        "connection closed, another address needs one:",
        "connection refused:",
    ]


def test_connections_leave_the_last_descriptors_to_files(
    play: Play, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(crowd: Crowd) -> None:
        first = await crowd.join()
        assert await echoes(crowd, first)
        monkeypatch.setattr(
            descriptors,
            "are_left",
            lambda sixteenths, limit: sixteenths > descriptors.FOR_CONNECTIONS,
        )
        for _ in range(5):
            await crowd.join()
        await until(lambda: crowd.peers.refused == 5)
        assert await echoes(crowd, first)
        monkeypatch.undo()
        assert await echoes(crowd, await crowd.join())

    play(PeerLimits(), scene)
    (line,) = caplog.messages
    assert "no file descriptors to spare, raise the limit of open files (ulimit -n)" in line


def test_what_is_held_comes_back_to_nothing_whatever_the_peers_do(play: Play) -> None:
    async def scene(crowd: Crowd) -> None:
        for number in range(12):
            peer = await crowd.join()
            await crowd.say(
                peer,
                (asks(MIB, 9), half_frame(MIB, 70_000), asks(10) + half_frame(9, 3))[number % 3],
            )
        await until(lambda: crowd.peers.figures()["connections"] == "12")
        for number, peer in enumerate(crowd.sockets):
            if number % 2:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
        await until(lambda: not crowd.server.connections)
        figures = crowd.peers.figures()
        assert (figures["connections"], figures["answerBytes"], figures["requestBytes"]) == (
            "0",
            "0",
            "0",
        )

    play(PeerLimits(), scene)


def test_the_ports_of_one_process_are_bounded_together() -> None:
    async def scene() -> None:
        crowd = Crowd(PeerLimits(), connections_max=2)
        await crowd.start()
        await crowd.join()
        await crowd.join()
        await until(lambda: len(crowd.server.connections) == 2)
        await crowd.join()
        await until(lambda: crowd.peers.refused == 1)
        assert len(crowd.server.connections) == 2
        await crowd.stop()

    asyncio.run(scene())


def test_nothing_stays_of_connections_that_come_as_the_server_closes() -> None:
    """As at the port for slaves: accepted in one turn of the loop, they are told to the server in a
    later one.
    """

    async def scene() -> None:
        for turns in range(6):
            server = Server({})
            port = await server.listen("127.0.0.1", 0)
            comers = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            left = len(server.connections)
            for peer in comers:
                peer.setblocking(False)
                with peer, suppress(ConnectionResetError):
                    async with asyncio.timeout(5):
                        assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
            assert left == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())
