"""Each kind of error has its response, and only unexpected ones are logged."""

from __future__ import annotations

import asyncio
import errno
import logging
import os

import pytest

from roquet.errors import (
    DispatchHeldUp,
    DriveSlow,
    PeerError,
    Refused,
    StoreBusy,
    UnreadableFile,
)
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.failures import failure
from roquet.transport.peers import Peers
from roquet.transport.server import Server
from tests.simulation.simulation import Simulation

SERVER, CLIENT, PORT = "10.0.0.1", "10.0.0.2", 7000
ASK, LEARN = 7, 8


def failed(error: Exception) -> Command:
    async def answer() -> Command:
        return failure(Command(ASK, opaque=3), error, Connection({}), Peers())

    return asyncio.run(answer())


@pytest.mark.parametrize(
    ("error", "code", "remark", "logged"),
    [
        (Refused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION, "no", ""),
        (ValueError("bad"), ResponseCode.SYSTEM_ERROR, f"request {ASK}: bad", ""),
        (DispatchHeldUp("no entries"), ResponseCode.SERVICE_NOT_AVAILABLE, "no entries", ""),
        (
            DriveSlow("took 2 s"),
            ResponseCode.SYSTEM_ERROR,
            "[PC_SYNCHRONIZED]broker busy: took 2 s",
            "",
        ),
        (StoreBusy("not dispatched"), ResponseCode.SYSTEM_ERROR, "not dispatched", ""),
        (
            OSError(errno.ENOSPC, "full", "/store/0"),
            ResponseCode.SYSTEM_ERROR,
            f"request {ASK}: no room on this server's drive ({os.strerror(errno.ENOSPC)})",
            "no room on the drive",
        ),
        (
            OSError(errno.EIO, "broken"),
            ResponseCode.SYSTEM_ERROR,
            f"OSError: [Errno {errno.EIO}] broken",
            f"request failed: code={ASK} ",
        ),
        (
            KeyError("k"),
            ResponseCode.SYSTEM_ERROR,
            "KeyError: 'k'",
            f"request failed: code={ASK} ",
        ),
    ],
)
def test_an_error_becomes_a_response(
    error: Exception, code: ResponseCode, remark: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = failed(error)
    assert (answer.code, answer.remark, answer.opaque) == (code, remark, 3)
    assert [line.startswith(logged) for line in caplog.messages] == ([True] if logged else [])


def test_a_file_that_cannot_be_read_is_logged_by_the_store_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = UnreadableFile(errno.EIO, "broken")
    assert failed(error).code == ResponseCode.SYSTEM_ERROR
    assert caplog.messages == []


def test_an_error_that_quotes_its_request_is_cut() -> None:
    assert len(failed(ValueError("x" * 5000)).remark or "") == 1000


def test_a_peer_that_breaks_the_protocol_gets_no_response() -> None:
    with pytest.raises(PeerError):
        failed(PeerError("broken"))


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
