"""A slave's client with a master, and with what only looks like one."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from roquet.replication import slave
from roquet.replication.client import HaClient
from roquet.replication.frames import header
from tests.replication.memory_log import MemoryLog
from tests.replication.ports import FILE_SIZE, LOG, Fake, Master
from tests.transport.crowd import until


def test_a_slave_that_cannot_read_its_own_end_says_so_and_follows_once_it_can(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Master() as its:
            copy = MemoryLog(FILE_SIZE, LOG[:1000])
            copy.is_unreadable = True
            client, address = HaClient(copy, lambda: None), f"127.0.0.1:{its.port}"
            client.set_master(address)
            await until(lambda: client.phase is slave.Phase.WAITING)
            assert "cannot read our log: [Errno 5]" in client.status().reason
            copy.is_unreadable = False
            client.set_master(None)
            client.set_master(address)
            await until(lambda: copy.end == its.log.end)
            await client.close()

    run(scene())
    assert "Traceback" not in caplog.text


BAD = {
    "garbage": lambda: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a negative size": lambda: header(0, 0)[:8] + struct.pack(">i", -1),
    "a huge size": lambda: header(0, 0)[:8] + struct.pack(">i", 1 << 30),
    "a negative offset": lambda: struct.pack(">qi", -8, 10),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_master_that_sends_what_is_no_frame_is_asked_ever_less_often_and_told_of_once(
    run: Callable[[Awaitable[None]], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(slave, "RETRY_MS", 10)
    monkeypatch.setattr("roquet.replication.client.TICK_S", 0.002)
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with Fake(BAD[kind]) as fake:
            copy = MemoryLog(FILE_SIZE, b"")
            client = HaClient(copy, lambda: None)
            began = asyncio.get_running_loop().time()
            client.set_master(f"127.0.0.1:{fake.port}")
            await until(lambda: len(fake.connections) >= 6)
            assert (
                asyncio.get_running_loop().time() - began >= 0.010 + 0.020 + 0.040 + 0.080 + 0.160
            )
            assert copy.end == 0
            await client.close()

    run(scene())
    assert len(caplog.messages) == 1
    assert "the master announces" in caplog.text


def test_a_master_that_ends_each_session_is_told_of_once_a_minute(
    run: Callable[[Awaitable[None]], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slave, "RETRY_SOON_MS", 5)
    monkeypatch.setattr("roquet.replication.client.TICK_S", 0.002)
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with Fake(lambda: header(0, 0), closes=True) as fake:
            client = HaClient(MemoryLog(FILE_SIZE, b""), lambda: None)
            client.set_master(f"127.0.0.1:{fake.port}")
            await until(lambda: len(fake.connections) >= 12)
            await client.close()

    run(scene())
    assert len(caplog.messages) == 2


def test_a_slave_that_ends_just_when_its_connection_is_made_does_not_wait_for_ever(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def scene() -> None:
        ends: list[asyncio.Task[None]] = []

        class Log(MemoryLog):
            """Read first when the connection is made."""

            def read(self, physical: int, size_max: int) -> bytes:
                ends.append(asyncio.get_running_loop().create_task(client.close()))
                return super().read(physical, size_max)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = HaClient(Log(FILE_SIZE, b"log"), lambda: None)
            client.set_master(f"127.0.0.1:{listener.getsockname()[1]}")
            await until(lambda: bool(ends))
            await asyncio.gather(*ends)
            assert client.phase is slave.Phase.IDLE

    run(scene())


def test_a_master_that_says_nothing_is_left_and_told_of_once(
    run: Callable[[Awaitable[None]], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slave, "RETRY_SOON_MS", 5)
    monkeypatch.setattr("roquet.replication.client.TICK_S", 0.002)

    async def scene() -> None:
        async with Fake(lambda: b"\0\0\0") as fake:
            client = HaClient(
                MemoryLog(FILE_SIZE, b""), lambda: None, slave.Rules(silence_ms_max=20)
            )
            client.set_master(f"127.0.0.1:{fake.port}")
            await until(lambda: len(fake.connections) >= 6)
            await client.close()

    run(scene())
    (line,) = caplog.messages
    assert "has been silent" in line


def test_a_master_that_never_reads_reports_is_left(
    run: Callable[[Awaitable[None]], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roquet.replication.client.UNREAD_MAX", 1024)
    monkeypatch.setattr("roquet.replication.client.TICK_S", 0.002)

    async def scene() -> None:
        deaf = socket.create_server(("127.0.0.1", 0))
        client = HaClient(MemoryLog(FILE_SIZE, LOG), lambda: None)
        client.set_master(f"127.0.0.1:{deaf.getsockname()[1]}")
        await until(lambda: client.phase is slave.Phase.FOLLOWING)
        while client.phase is slave.Phase.FOLLOWING:
            client._current.write(bytes(1 << 20))
            await asyncio.sleep(0)
        await client.close()
        deaf.close()

    run(scene())
    assert "the master does not read" in caplog.text


# what it says of its master


class Slave:
    """A client with a log of its own; `appended` are the ends of the log that it told of."""

    def __init__(self, content: bytes = b"") -> None:
        self.log = MemoryLog(FILE_SIZE, content)
        self.appended: list[int] = []
        self.client = HaClient(self.log, lambda: self.appended.append(self.log.end))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client looks at its master often, and connects again soon."""
    for name in "RETRY_MS", "RETRY_SOON_MS":
        monkeypatch.setattr(slave, name, 5)
    monkeypatch.setattr("roquet.replication.client.TICK_S", 0.002)


async def test_a_slave_that_has_the_log_says_so() -> None:
    async with Master() as its:
        follower = Slave()
        client, address = follower.client, f"127.0.0.1:{its.port}"
        assert (client.phase, client.master) == (slave.Phase.IDLE, None)

        client.set_master(address)
        assert client.phase is slave.Phase.CONNECTING
        await until(lambda: follower.log.end == its.log.end)

        status = client.status()
        assert (status.master, status.phase) == (address, slave.Phase.FOLLOWING)
        assert (status.end, status.reason) == (len(LOG), "")
        assert bytes(follower.log.content) == LOG
        assert follower.appended[-1] == len(LOG)
        assert follower.appended == sorted(set(follower.appended))
        await client.close()
        assert (client.phase, client.master) == (slave.Phase.IDLE, None)


async def test_a_master_that_is_followed_already_is_not_connected_again() -> None:
    async with Master() as its:
        follower = Slave()
        for _ in range(3):
            follower.client.set_master(f"127.0.0.1:{its.port}")
        await until(lambda: follower.log.end == its.log.end)
        follower.client.set_master(f"127.0.0.1:{its.port}")

        assert its.connections == 1
        assert follower.client.phase is slave.Phase.FOLLOWING
        await follower.client.close()


async def test_a_slave_without_a_master_leaves_the_one_that_it_followed() -> None:
    async with Master() as its:
        follower = Slave()
        follower.client.set_master(f"127.0.0.1:{its.port}")
        await until(lambda: its.server.slave_count == 1)

        follower.client.set_master(None)

        await until(lambda: its.server.slave_count == 0)
        assert (follower.client.phase, follower.client.master) == (slave.Phase.IDLE, None)
        await follower.client.close()


async def test_a_slave_goes_over_to_another_master() -> None:
    async with Master() as old, Master() as new:
        new.log.append(b"more")
        follower = Slave()
        follower.client.set_master(f"127.0.0.1:{old.port}")
        await until(lambda: follower.log.end == old.log.end)

        follower.client.set_master(f"127.0.0.1:{new.port}")

        await until(lambda: follower.log.end == new.log.end)
        await until(lambda: old.server.slave_count == 0)
        assert bytes(follower.log.content) == LOG + b"more"
        await follower.client.close()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.0.0.1:port", "127.0.0.1:", "", ":", "127.0.0.1:1", "[::1]:1"]
)
async def test_a_master_that_cannot_be_connected_is_said(address: str) -> None:
    follower = Slave()

    follower.client.set_master(address)
    await until(lambda: follower.client.phase is slave.Phase.WAITING)

    assert follower.client.status().reason.startswith("cannot connect: ")
    await follower.client.close()


async def test_a_slave_whose_drive_is_full_waits_and_goes_on_once_there_is_room(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Master() as its:
        follower = Slave(LOG[:1000])
        follower.log.is_full = True
        address = f"127.0.0.1:{its.port}"
        follower.client.set_master(address)
        await until(lambda: "cannot write the log: no room" in follower.client.status().reason)
        assert (follower.log.end, follower.appended) == (1000, [])

        follower.log.is_full = False
        await until(lambda: follower.log.end == its.log.end)

        assert follower.client.status().reason == ""
        await follower.client.close()
    own = [text for text in caplog.messages if "following the master" in text]
    assert own[0].startswith(f"not following the master: master={address} state=")
    assert own[-1].startswith(f"following the master again: master={address} offset=")


async def test_a_slave_whose_log_differs_stops_and_says_who_can_help(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Master() as its:
        follower = Slave(bytes(1000))
        follower.client.set_master(f"127.0.0.1:{its.port}")

        await until(lambda: follower.client.phase is slave.Phase.STOPPED)

        assert follower.log.end == 1000
        assert "replication stopped until an operator acts or the master changes" in caplog.text
        await follower.client.close()


async def test_the_speed_of_the_copy_is_measured(soon: None) -> None:
    async with Master() as its:
        follower = Slave()
        follower.client.set_master(f"127.0.0.1:{its.port}")

        def grow() -> bool:
            its.log.append(bytes(100))
            its.server.notify_growth()
            return follower.client.status().bytes_per_s > 0

        await until(grow)
        await until(lambda: follower.client.status().bytes_per_s == 0)
        await follower.client.close()


async def test_a_client_that_follows_nobody_closes_at_once() -> None:
    follower = Slave()

    await follower.client.close()
    follower.client.set_master(None)
    await follower.client.close()

    assert follower.client.phase is slave.Phase.IDLE
