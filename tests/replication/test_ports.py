"""Strangers and broken peers at both ends of a real replication connection: nobody else is
disturbed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from roquet.replication import master, slave
from roquet.replication.admission import Admission, Candidate, networks
from roquet.replication.client import HaClient
from roquet.replication.frames import header, report
from roquet.replication.server import HaServer
from tests.replication.memory_log import MemoryLog
from tests.transport.crowd import until

FILE_SIZE = 1 << 20
LOG = bytes(range(256)) * 16
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the end of this socket is a reset."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def whole(scene: Awaitable[None]) -> None:
        async def within_time() -> None:
            async with asyncio.timeout(20):
                await scene

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(within_time())

    return whole


class Master:
    """A server of slaves, whose rules and admission a test chooses."""

    def __init__(
        self, rules: master.Rules | None = None, admission: Admission | None = None
    ) -> None:
        self.log = MemoryLog(FILE_SIZE, LOG)
        self.acks = 0
        self.server = HaServer(self.log, rules, admission)
        self.server.acked.add(self._acked)
        self.port = 0

    def _acked(self) -> None:
        self.acks += 1

    async def __aenter__(self) -> Master:
        self.port = await self.server.listen("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    @property
    def connections(self) -> int:
        return sum(not each.reason for each in self.server.slaves())

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), source_address=(source, 0))

    async def copy_once(self) -> None:
        """A slave comes and gets the whole log."""
        copy = MemoryLog(FILE_SIZE, b"")
        client = HaClient(copy, lambda: None)
        client.set_master(f"127.0.0.1:{self.port}")
        await until(lambda: copy.end == self.log.end and self.server.replicated_to == self.log.end)
        await client.close()


def test_a_hundred_resets_are_no_tracebacks_and_no_lines(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Master() as its:
            for _ in range(100):
                peer = its.connect()
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                peer.close()
            await its.copy_once()

    run(scene())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, report(1)[:5], report(1 << 40)]
)
def test_what_is_no_slave_is_told_of_once_however_often_it_comes(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async def scene() -> None:
        async with Master() as its:
            for _ in range(40):
                peer = its.connect()
                peer.sendall(said)
                peer.close()
            await its.copy_once()
            await until(lambda: its.server.slave_count == 0)

    run(scene())
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 2


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01" + bytes(8), b"\xff" * 8, b"\n"],
)
def test_what_is_no_slave_is_not_the_last_slave(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async def scene() -> None:
        async with Master() as its:
            await its.copy_once()
            await until(lambda: its.server.slave_count == 0)
            before = its.server.why_no_slave
            peer = its.connect()
            peer.sendall(said)
            peer.close()
            await until(
                lambda: any(
                    "ended, no slave: peer=127.0.0.1:" in each.message for each in caplog.records
                )
            )
            assert its.server.why_no_slave == before
            assert len(its.server.slaves()) == 1

    run(scene())


def test_reports_beyond_what_was_sent_or_backwards_acknowledge_nothing(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def scene() -> None:
        async with Master() as its:
            honest = its.connect()
            honest.sendall(report(1000))
            await until(lambda: its.server.replicated_to == 1000)
            honest.sendall(report(10))
            await until(lambda: its.server.slaves()[0].silent_ms < 1000)
            assert its.server.replicated_to == 1000
            honest.sendall(report(len(LOG) + 1))
            await until(lambda: its.server.slave_count == 0)
            assert its.server.replicated_to == 0
            honest.close()

    run(scene())


def test_slaves_that_do_not_read_are_dropped_and_their_memory_is_back(
    run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.replication.server.TICK_S", 0.05)

    async def scene() -> None:
        rules = master.Rules(chunk_size=1 << 20, silence_ms_max=200)
        async with Master(rules) as its:
            its.log.append(bytes(8 << 20))
            peers = [its.connect() for _ in range(20)]
            for peer in peers:
                peer.sendall(report(1))
            await until(lambda: its.server.slave_count > 0)
            await until(lambda: not its.connections)
            assert {each.reason.split(" for ")[0] for each in its.server.slaves()} == {
                "the slave has been silent"
            }
            for peer in peers:
                peer.close()

    run(scene())


def test_the_number_of_slaves_is_bounded_and_the_mute_make_room(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Master(admission=Admission(connections_max=3)) as its:
            mute = [its.connect() for _ in range(30)]
            await its.copy_once()
            assert its.connections <= 3
            slaves = [its.connect() for _ in range(3)]
            for each in slaves:
                each.sendall(report(1))
            await until(lambda: its.server.slave_count == 3)
            late = [its.connect() for _ in range(20)]
            for each in late:
                each.settimeout(5)
                with suppress(ConnectionResetError):
                    assert await asyncio.to_thread(each.recv, 1) == b""
            assert its.server.slave_count == 3
            for each in [*mute, *slaves, *late]:
                each.close()

    run(scene())
    assert len([line for line in caplog.messages if "haConnectionsMax=3" in line]) == 1


LOOPBACK_NET = pytest.mark.skipif(
    sys.platform != "linux", reason="127.0.0.2 is an address of its own on Linux only"
)


@LOOPBACK_NET
def test_strangers_of_one_address_neither_keep_a_slave_out_nor_push_it_out(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """They speak the protocol, and acknowledge all there is: nothing but their address tells them
    from slaves.
    """

    async def scene() -> None:
        async with Master(admission=Admission(connections_max=4)) as its:

            async def crowd_of_strangers() -> list[socket.socket]:
                strangers = [its.connect("127.0.0.2") for _ in range(12)]
                for each in strangers:
                    with suppress(OSError):
                        each.sendall(report(its.log.end))
                await until(lambda: its.server.slave_count == 4)
                return strangers

            sockets = await crowd_of_strangers()
            copy = MemoryLog(FILE_SIZE, b"")
            client = HaClient(copy, lambda: None)
            client.set_master(f"127.0.0.1:{its.port}")
            await until(lambda: copy.end == its.log.end)
            sockets += await crowd_of_strangers()
            its.log.append(bytes(1000))
            its.server.notify_growth()
            await until(lambda: copy.end == its.log.end)
            assert client.status().reason == ""
            hosts = [
                each.address.partition(":")[0] for each in its.server.slaves() if not each.reason
            ]
            assert sorted(hosts) == ["127.0.0.1"] + ["127.0.0.2"] * 3
            await client.close()
            for each in sockets:
                each.close()

    run(scene())
    assert len([line for line in caplog.messages if "haConnectionsMax=4" in line]) <= 2, (
        "one way, and the other"
    )


def test_of_one_address_those_that_repeat_a_report_while_there_is_more_make_room(
    run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.replication.server.TICK_S", 0.02)

    async def scene() -> None:
        async with Master(master.Rules(silence_ms_max=100), Admission(connections_max=3)) as its:
            strangers = [its.connect() for _ in range(3)]

            async def keep_on() -> None:
                while True:
                    for each in strangers:
                        with suppress(OSError):
                            each.sendall(report(1))
                    await asyncio.sleep(0.01)

            talking = asyncio.create_task(keep_on())
            await until(lambda: its.server.slave_count == 3)
            await its.copy_once()
            talking.cancel()
            for each in strangers:
                each.close()

    run(scene())


SAYS, MUTE = True, False


@pytest.mark.parametrize(
    ("places", "newcomer", "goes"),
    [
        pytest.param([("a", SAYS, 0, 9)] * 4, "b", 0, id="an address with all places gives one"),
        pytest.param([("a", SAYS, 0, 9), ("b", SAYS, 0, 1)] * 2, "b", None, id="equal shares"),
        pytest.param(
            [("a", SAYS, 0, 9), ("b", SAYS, 0, 1), ("a", SAYS, 0, 9)],
            "b",
            None,
            id="it would come back",
        ),
        pytest.param(
            [("a", SAYS, 0, 9), ("b", SAYS, 0, 1)], "c", None, id="many addresses push nobody out"
        ),
        pytest.param(
            [("a", SAYS, 0, 9), ("b", MUTE, 0, 0)], "c", 1, id="but for one that says nothing"
        ),
        pytest.param([("a", SAYS, 0, 9), ("b", SAYS, 101, 5)], "c", 1, id="or stands still"),
        pytest.param([("a", SAYS, 0, 9), ("b", SAYS, 100, 5)], "c", None, id="for long enough"),
        pytest.param(
            [("b", MUTE, 0, 0), ("a", SAYS, 0, 9), ("a", SAYS, 0, 8)],
            "c",
            2,
            id="most places, then use",
        ),
        pytest.param(
            [("a", SAYS, 0, 8), ("a", SAYS, 101, 9), ("a", MUTE, 0, 0)], "b", 2, id="the mute first"
        ),
        pytest.param([("a", SAYS, 0, 8), ("a", SAYS, 101, 9)], "b", 1, id="then who stands still"),
        pytest.param([("a", SAYS, 0, 9), ("a", SAYS, 0, 8)], "b", 1, id="then who has least"),
        pytest.param([("a", MUTE, 0, 0), ("a", MUTE, 0, 0)], "a", 0, id="of the mute the oldest"),
    ],
)
def test_the_connection_that_is_closed_for_a_newcomer(
    places: list[tuple[str, bool, int, int]], newcomer: str, goes: int | None
) -> None:
    assert Admission().to_close([Candidate(*each) for each in places], newcomer, 100) == goes


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


def test_only_slaves_from_allowed_addresses_acknowledge(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A fake slave that stores nothing is believed by a master that lets it in: there is no
    authentication.
    """
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with Master(admission=Admission(networks("10.0.0.0/8, 192.168.1.7"))) as its:
            for _ in range(10):
                fake = its.connect()
                with suppress(OSError):
                    fake.sendall(report(len(LOG)))
                    assert await asyncio.to_thread(fake.recv, 1) == b""
                fake.close()
            assert its.acks == its.server.slave_count == 0
        async with Master(admission=Admission(networks("127.0.0.0/8"))) as its:
            await its.copy_once()

    run(scene())
    assert len([line for line in caplog.messages if "haAllowedAddresses" in line]) == 1
    assert [
        line
        for line in caplog.messages
        if line.startswith("slave joined, ") and "peer=127.0.0.1:" in line
    ]


@pytest.mark.parametrize(
    ("text", "host", "is_among"),
    [
        ("", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.0/24; fd00::/8", "10.1.2.200", True),
        ("10.1.2.0/24; fd00::/8", "::ffff:10.1.2.200", True),
        ("10.1.2.0/24; fd00::/8", "fd00::1%eth0", True),
        ("10.1.2.0/24; fd00::/8", "fe80::1", False),
    ],
)
def test_addresses_and_networks(text: str, host: str, is_among: bool) -> None:
    assert Admission(networks(text)).allows(host) is is_among


# the slave's side


class Fake:
    """Listens as a master does; `say` is what each connection gets.

    Invariant: a connection is among `connections` as soon as it is accepted, so that none outlives the
    event loop.
    """

    def __init__(self, say: Callable[[], bytes], *, closes: bool = False) -> None:
        self._say = say
        self._closes = closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]

    async def __aenter__(self) -> Fake:
        asyncio.get_running_loop().add_reader(self._listener, self._serve)
        return self

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        self.connections.append(connection)
        with suppress(OSError):  # the slave has been closed meanwhile
            connection.sendall(self._say())
            if self._closes:
                connection.shutdown(socket.SHUT_WR)  # closed with a report unread it would be reset

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        for each in (self._listener, *self.connections):
            each.close()


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


def test_nothing_stays_of_connections_that_come_as_the_port_closes() -> None:
    """Accepted in one turn of the loop, they are told to the server in a later one.

    asyncio's own loop forgets some of them.
    """

    async def scene() -> None:
        for turns in range(6):
            its = Master()
            await its.__aenter__()
            comers = [its.connect() for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await its.server.close()
            left = its.connections
            ends = [await ended(peer) for peer in comers]
            assert (left, ends) == (0, [True] * 5)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())


async def ended(peer: socket.socket, seconds: float = 2.0) -> bool:
    """Whether the other side has closed the connection; closes it."""
    peer.setblocking(False)
    with peer:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().sock_recv(peer, 1024) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
