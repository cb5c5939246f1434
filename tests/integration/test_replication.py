"""One master and its slaves on loopback, real sockets and real log files."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.replication import master, slave
from roquet.replication.client import HaClient
from roquet.replication.frames import HEADER, report
from roquet.replication.server import HaServer, SlaveFollow
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.folders import LogFolders
from roquet.storage.log.commit_log import CommitLog

FILE_SIZE = 64 * 1024
LARGE_FILE_SIZE = 16 * 1024 * 1024
HOST = "127.0.0.1"
WITHIN_S = 20.0


def some_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def a_log(
    folder: Path, content: bytes = b"", file_size: int = FILE_SIZE, start: int = 0
) -> CommitLog:
    log = CommitLog(RealDisk(), LogFolders(RealDisk(), [folder]), file_size)
    log.load()
    log.replicate(start, content)
    return log


def content(log: CommitLog) -> bytes:
    at, parts = log.start, []
    while at < log.end:
        parts.append(bytes(log.read(at, log.file_size)))
        at = at + len(parts[-1])
    return b"".join(parts)


class Cluster:
    """Logs, servers and clients of one test; `until` looks at its condition whenever one of them
    has done something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._happened = asyncio.Event()
        self._closing: list[Callable[[], Awaitable[None]]] = []

    def happened(self) -> None:
        self._happened.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """What changes without a callback is looked at ten times a second."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                self._happened.clear()
                timer = asyncio.get_running_loop().call_later(0.1, self._happened.set)
                await self._happened.wait()
                timer.cancel()

    async def master(self, log: CommitLog, port: int = 0) -> tuple[HaServer, str]:
        server = HaServer(log)
        server.acked.add(self.happened)
        self._closing.append(server.close)
        return server, f"{HOST}:{await server.listen(HOST, port)}"

    def slave(self, log: CommitLog, master_address: str) -> HaClient:
        client = HaClient(log, self.happened)
        self._closing.append(client.close)
        client.set_master(master_address)
        return client

    async def raw_slave(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that says and reads only what the test makes it; the kernel takes little on
        its behalf.
        """
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        door.setblocking(False)
        await asyncio.get_running_loop().sock_connect(door, (HOST, int(address.rpartition(":")[2])))
        reader, writer = await asyncio.open_connection(sock=door, limit=16 * 1024)

        async def close() -> None:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

        self._closing.append(close)
        return reader, writer

    async def close(self) -> None:
        for close in reversed(self._closing):
            await close()


@asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        await cluster.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_cluster(tmp_path) as each:
        yield each


def only(rows: list[SlaveFollow]) -> SlaveFollow:
    (row,) = rows
    return row


async def slaves_at_different_places_become_equal(cluster: Cluster) -> None:
    written = some_bytes(3 * FILE_SIZE + 1000)
    log = a_log(cluster.folder / "m", written)
    copies = [
        a_log(cluster.folder / "middle", written[: FILE_SIZE + 77]),
        a_log(cluster.folder / "same", written),
        a_log(cluster.folder / "empty"),
    ]
    server, address = await cluster.master(log)
    for copy in copies:
        cluster.slave(copy, address)
    await cluster.until(lambda: [row.acked for row in server.slaves()] == [log.end] * 3)
    for growth in range(1, 40):
        log.replicate(log.end, some_bytes(3_000, seed=growth))
        server.notify_growth()
        await asyncio.sleep(0)
    await cluster.until(lambda: [row.acked for row in server.slaves()] == [log.end] * 3)
    assert [content(copy) for copy in copies] == [
        content(log),
        content(log),
        content(log)[3 * FILE_SIZE :],
    ]
    assert (server.slave_count, server.replicated_to) == (3, log.end)
    assert {row.lag for row in server.slaves()} == {0}


async def test_slaves_at_different_places_become_equal(cluster: Cluster) -> None:
    await slaves_at_different_places_become_equal(cluster)


def test_the_same_under_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def run() -> None:
        async with a_cluster(tmp_path) as cluster:
            await slaves_at_different_places_become_equal(cluster)

    uvloop.run(run())


async def test_a_slow_slave_slows_only_itself(cluster: Cluster) -> None:
    log = a_log(cluster.folder / "m", some_bytes(LARGE_FILE_SIZE - 100), LARGE_FILE_SIZE)
    server, address = await cluster.master(log)
    _, writer = await cluster.raw_slave(address)
    writer.write(report(1))
    await cluster.until(lambda: server.slave_count == 1)
    copy = a_log(cluster.folder / "s", file_size=LARGE_FILE_SIZE)
    cluster.slave(copy, address)
    await cluster.until(lambda: server.replicated_to == log.end)
    slow, fast = server.slaves()
    assert (slow.acked, fast.acked) == (1, log.end)
    assert slow.sent < log.end
    assert content(copy) == content(log)


async def test_a_slave_comes_back_when_its_master_does(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "roquet.replication.client")
    log = a_log(cluster.folder / "m", some_bytes(5_000))
    copy = a_log(cluster.folder / "s")
    server, address = await cluster.master(log)
    client = cluster.slave(copy, address)
    await cluster.until(lambda: server.replicated_to == log.end)
    await server.close()
    assert (server.slave_count, server.replicated_to) == (0, 0)
    await cluster.until(lambda: client.status().phase is slave.Phase.WAITING)
    log.replicate(log.end, some_bytes(5_000, seed=2))
    server, _ = await cluster.master(log, int(address.rpartition(":")[2]))
    await cluster.until(lambda: server.replicated_to == log.end)
    assert content(copy) == content(log)
    assert client.status().reason == ""
    *_, told = (each.message for each in caplog.records if each.name == "roquet.replication.client")
    assert told == f"following the master again: master={address} offset=10000"


async def test_a_slave_of_the_wrong_master_stops_and_follows_the_right_one(
    cluster: Cluster,
) -> None:
    log, other = (
        a_log(cluster.folder / "m", some_bytes(5_000)),
        a_log(cluster.folder / "o", some_bytes(9_000, seed=3)),
    )
    copy = a_log(cluster.folder / "s", some_bytes(4_000))
    server, address = await cluster.master(log)
    _, wrong_address = await cluster.master(other)
    client = cluster.slave(copy, wrong_address)
    await cluster.until(lambda: client.status().phase is slave.Phase.STOPPED)
    assert client.status().reason == "the logs have diverged: the bytes at offset 1 differ"
    client.set_master(address)
    await cluster.until(lambda: server.replicated_to == log.end)
    assert content(copy) == content(log)


async def test_a_slave_ahead_of_the_log_is_refused_and_told_of(cluster: Cluster) -> None:
    server, address = await cluster.master(a_log(cluster.folder / "m", some_bytes(1_000)))
    client = cluster.slave(a_log(cluster.folder / "s", some_bytes(9_000)), address)
    await cluster.until(lambda: client.status().phase is slave.Phase.WAITING)
    assert client.status().reason == "the master closed the connection after our report of 4904"
    row = only(server.slaves())
    assert row.phase is master.Phase.GONE
    assert row.reason == "the slave is ahead of the log: it reports 4904, the log ends at 1000"


async def test_an_acknowledgement_of_what_was_never_sent_does_not_count(cluster: Cluster) -> None:
    log = a_log(cluster.folder / "m", some_bytes(1_000))
    server, address = await cluster.master(log)
    reader, writer = await cluster.raw_slave(address)
    writer.write(report(900))
    await reader.readexactly(HEADER.size + 100)
    assert server.replicated_to == 900
    writer.write(report(1_000_000))
    await cluster.until(lambda: server.slave_count == 0)
    assert server.replicated_to == 0
    assert "ahead of the log" in only(server.slaves()).reason


async def test_of_reports_that_come_together_the_last_one_counts(cluster: Cluster) -> None:
    server, address = await cluster.master(a_log(cluster.folder / "m", some_bytes(1_000)))
    reader, writer = await cluster.raw_slave(address)
    writer.write(report(999_999) + report(900))
    assert HEADER.unpack(await reader.readexactly(HEADER.size)) == (900, 100)
    assert only(server.slaves()).acked == 900


async def test_bytes_that_are_no_report_end_only_their_connection(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(cluster.folder / "m", some_bytes(1_000))
    server, address = await cluster.master(log)
    cluster.slave(a_log(cluster.folder / "s"), address)
    reader, writer = await cluster.raw_slave(address)
    writer.write(b"\xff" * 8)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await reader.readexactly(1)
    await cluster.until(lambda: server.replicated_to == log.end)
    assert [row.reason for row in server.slaves()] == [""]
    assert any("reason=invalid slave report: offset=-1" in each.message for each in caplog.records)


async def test_a_connection_that_ends_within_a_report_is_told_of(cluster: Cluster) -> None:
    server, address = await cluster.master(a_log(cluster.folder / "m", some_bytes(1_000)))
    _, writer = await cluster.raw_slave(address)
    writer.write(report(900) + report(900)[:5])
    writer.close()
    await cluster.until(lambda: any(row.reason for row in server.slaves()))
    assert only(server.slaves()).reason == "the connection ended after 5 of the 8 bytes of a report"


async def test_many_slaves_of_a_host_that_are_dropped_for_one_reason_are_told_of_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(cluster.folder / "m", some_bytes(1_000))
    server, address = await cluster.master(log)
    for offset in (5_000, 6_000, 7_000):
        reader, writer = await cluster.raw_slave(address)
        writer.write(report(offset))
        with suppress(ConnectionError):
            assert await reader.read() == b""
    assert only(server.slaves()).reason.startswith("the slave is ahead of the log: it reports 7000")
    (told,) = (each.message for each in caplog.records)
    assert "it reports 5000" in told


async def test_a_slave_that_goes_is_told_of_again_once_it_was_of_use(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(cluster.folder / "m", some_bytes(1_000))
    server, address = await cluster.master(log)

    async def come_and_go(offsets: list[int]) -> None:
        _, writer = await cluster.raw_slave(address)
        for offset in offsets:
            writer.write(report(offset))
            await cluster.until(partial(is_acked, offset))
        writer.close()
        await cluster.until(lambda: server.slave_count == 0)

    def is_acked(offset: int) -> bool:
        return server.slave_count == 1 and server.replicated_to == offset

    told = []
    for offsets in [900], [900], [900, 1_000]:
        await come_and_go(offsets)
        told.append(sum("reason=the connection ended" in each.message for each in caplog.records))
    assert told == [1, 1, 2]


async def test_a_slave_that_leaves_counts_no_more(cluster: Cluster) -> None:
    log = a_log(cluster.folder / "m", some_bytes(1_000))
    server, address = await cluster.master(log)
    client = cluster.slave(a_log(cluster.folder / "s"), address)
    await cluster.until(lambda: server.replicated_to == log.end)
    await client.close()
    await cluster.until(lambda: server.slave_count == 0)
    assert server.replicated_to == 0
    row = only(server.slaves())
    assert (row.acked, row.reason) == (log.end, "the connection ended")
    assert server.why_no_slave.endswith("disconnected: the connection ended")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address at all"])
async def test_a_master_that_cannot_be_reached_is_told_of(cluster: Cluster, address: str) -> None:
    client = cluster.slave(a_log(cluster.folder / "s"), address)
    await cluster.until(lambda: client.status().phase is slave.Phase.WAITING)
    assert client.status().reason.startswith("cannot connect: ")


class FullLog(CommitLog):
    """A log whose drive has no room."""

    def replicate(self, physical: int, data: bytes | memoryview) -> None:
        raise StoreError("no room left")


async def test_a_slave_without_room_says_so(cluster: Cluster) -> None:
    _, address = await cluster.master(a_log(cluster.folder / "m", some_bytes(1_000)))
    client = cluster.slave(
        FullLog(RealDisk(), LogFolders(RealDisk(), [cluster.folder / "s"]), FILE_SIZE), address
    )
    await cluster.until(lambda: client.status().phase is slave.Phase.WAITING)
    assert client.status().reason == "cannot write the log: no room left"


async def test_what_speaks_another_protocol_is_no_master(cluster: Cluster) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-somebody else\r\n")
        writer.close()

    other = await asyncio.start_server(greet, HOST, 0)
    async with other:
        client = cluster.slave(
            a_log(cluster.folder / "s"), f"{HOST}:{other.sockets[0].getsockname()[1]}"
        )
        await cluster.until(lambda: client.status().phase is slave.Phase.WAITING)
        assert client.status().reason.startswith(
            "the master broke the protocol: the master announces "
        )
        await client.close()
