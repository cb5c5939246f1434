"""One connection by itself; tests/integration has what needs a real one."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

import pytest

from roquet.errors import ConnectionClosed, Refused
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import HEADER_SIZE_MAX, Command, decode
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.dispatcher import FastPathMakers
from roquet.transport.handling import SlowPath
from roquet.transport.limits import CALLER
from roquet.transport.server import Server
from tests.simulation.simulation import Simulation

SERVER, CLIENT, PORT = "10.0.0.1", "10.0.0.2", 7000
LEARN, ASK = 1, 2


class Refusing:
    """A shortcut that was learnt, and that refuses the first request of a read; the others go the
    general way.
    """

    def __init__(self, connection: Connection, error: Exception) -> None:
        self._connection = connection
        self._error = error

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        answers = []
        for number, frame in enumerate(frames):
            refused = self._connection.failure(decode(frame), self._error).encode()
            answers.append(slow_path(frame) if number else refused)
        return [answer for answer in answers if answer is not None]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "No space left on device"), ResponseCode.SYSTEM_ERROR),
        (Refused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
    ],
)
def test_a_shortcut_takes_all_of_a_read_and_answers_what_fails_there(
    error: Exception, code: ResponseCode
) -> None:
    def learn(request: Command, connection: Connection) -> Command:
        connection.dispatcher.fast_path(Refusing)
        return request.answer(ResponseCode.SUCCESS)

    def server() -> Server:
        makers: FastPathMakers[Connection] = {Refusing: lambda each: Refusing(each, error)}
        return Server({LEARN: learn}, fast_paths=makers)

    async def ask() -> list[int]:
        channels = Channels()
        await channels.call(f"{SERVER}:{PORT}", Command(LEARN), 1000)
        connection = await channels.connection(f"{SERVER}:{PORT}")
        answers = await asyncio.gather(
            *(connection.calls.call(Command(code), 1000) for code in (ASK, LEARN, ASK))
        )
        await channels.close()
        return [answer.code for answer in answers]

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: server().listen("0.0.0.0", PORT))
        unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert sim.host(CLIENT).call(ask) == [code, ResponseCode.SUCCESS, unknown]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_drive_is_answered_without_the_names_of_files(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Command, connection: Connection) -> Command:
        raise OSError(number, os.strerror(number), "/store/commitlog/0")

    async def ask() -> list[tuple[int, str | None]]:
        channels = Channels()
        answers = [
            await channels.call(f"{SERVER}:{PORT}", Command(code), 1000) for code in (ASK, LEARN)
        ]
        await channels.close()
        return [(answer.code, answer.remark) for answer in answers]

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({ASK: fail, LEARN: fail}).listen("0.0.0.0", PORT))
        told = f"no room on this server's drive ({os.strerror(number)})"
        assert sim.host(CLIENT).call(ask) == [
            (ResponseCode.SYSTEM_ERROR, f"request {code}: {told}") for code in (ASK, LEARN)
        ]
    (line,) = caplog.messages
    assert f"code={ASK} file=/store/commitlog/0 error={os.strerror(number)}" in line


def test_a_request_that_cannot_be_encoded_leaves_nothing_that_waits() -> None:
    complaints: list[str] = []

    def refuse(command: Command) -> bytes:
        raise ValueError("no such field")

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: complaints.append(told["message"]))
        connection = Connection({}, encode=refuse)
        await loop.create_connection(lambda: connection, SERVER, PORT)
        for work in (
            connection.calls.call(Command(ASK), 1000),
            connection.calls.call_all([Command(ASK)], 1000),
        ):
            with pytest.raises(ValueError, match="no such field"):
                await work
        connection.close()
        await asyncio.sleep(0.1)
        gc.collect()

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({}).listen("0.0.0.0", PORT))
        sim.host(CLIENT).call(ask)
    assert complaints == []


class SkewedLoop(asyncio.SelectorEventLoop):
    """Its clock is as much ahead as a handler says that it took."""

    def __init__(self) -> None:
        super().__init__()
        self.skew_s = 0.0

    def time(self) -> float:
        return super().time() + self.skew_s


def test_requests_that_take_long_are_answered_in_several_turns_though_they_came_in_one_read() -> (
    None
):
    """Each of them makes a file, say."""
    turns: Counter[int] = Counter()
    turn = 0

    async def ask(loop: SkewedLoop) -> list[Command]:
        def slow(request: Command, connection: Connection) -> Command:
            loop.skew_s += 0.003
            turns[turn] += 1
            return request.answer(ResponseCode.SUCCESS)

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        server, channels = Server({RequestCode.HEART_BEAT: slow}), Channels()
        port = await server.listen("127.0.0.1", 0)
        connection = await channels.connection(f"127.0.0.1:{port}")
        counting = asyncio.create_task(count())
        try:
            return await connection.calls.call_all(
                [Command(RequestCode.HEART_BEAT) for _ in range(40)], 60_000
            )
        finally:
            counting.cancel()
            await channels.close()
            await server.close()

    loop = SkewedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        answers = runner.run(ask(loop))
    assert [answer.code for answer in answers] == [0] * 40
    assert max(turns.values()) <= 2


def test_a_request_with_a_larger_header_than_anybody_writes_ends_its_connection() -> None:
    async def ask(size: int) -> int:
        channels = Channels()
        text = "v" * (size - len(Command(ASK, {"a": ""}).encode()) + 8)
        try:
            return (await channels.call(f"{SERVER}:{PORT}", Command(ASK, {"a": text}), 1000)).code
        finally:
            await channels.close()

    def answer(request: Command, connection: Connection) -> Command:
        return request.answer(ResponseCode.SUCCESS, fields={"a": "v" * 2 * HEADER_SIZE_MAX})

    with Simulation(1) as sim:
        sim.host(SERVER).call(lambda: Server({ASK: answer}).listen("0.0.0.0", PORT))
        assert sim.host(CLIENT).call(lambda: ask(HEADER_SIZE_MAX)) == 0, (
            "an answer's header may be larger"
        )
        with pytest.raises(ConnectionClosed):
            sim.host(CLIENT).call(lambda: ask(HEADER_SIZE_MAX + 1))


def test_a_broker_that_asks_on_and_reads_no_answer_is_left() -> None:
    """Its client kept all answers: some MB more each second, for two minutes."""
    most = 0

    async def ask_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(Command(ASK).encode())
                await writer.drain()
                await asyncio.sleep(0)

    async def be_asked() -> None:
        nonlocal most

        def answer(request: Command, connection: Connection) -> Command:
            nonlocal most
            most = max(most, connection.unread)
            return request.answer(ResponseCode.SUCCESS, body=bytes(65536))

        server, channels = (
            await asyncio.start_server(ask_on, "127.0.0.1", 0),
            Channels({ASK: answer}),
        )
        connection = await channels.connection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            with pytest.raises(ConnectionClosed):
                await connection.calls.call(Command(LEARN), 10_000)
        finally:
            await channels.close()
            server.close()

    asyncio.run(be_asked())
    bound = CALLER.answer_bytes_per_connection_max
    assert bound < most <= 2 * bound + 2 * 65536
