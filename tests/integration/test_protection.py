"""What peers that ask much, read nothing or come in thousands cost the others.

See docs/broker/flow-control.md#what-roquet-does.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import roquet
from roquet.protocol.headers.pull import SUBSCRIPTION, SUSPEND, PullHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import ONE_WAY, Command, decode
from roquet.protocol.remoting.frame import FrameBuffer
from roquet.transport.connection import Connection
from roquet.transport.server import Server
from tests.interop.processes import SEND_MS_MAX

resource = pytest.importorskip("resource")
uvloop = pytest.importorskip("uvloop")

MIB = 1 << 20
BUFFERED_MAX = 24 * MIB
"""What a server may have made for a peer that reads nothing: its own buffers, and those of the two
systems.
"""
BIG = 1001


class Peer:
    """A plain socket that reads only when it is told to."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._socket.setblocking(False)
        self._port = port
        self._frames = FrameBuffer()

    async def connect(self) -> None:
        await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", self._port))

    async def ask(self, *requests: Command) -> None:
        await asyncio.get_running_loop().sock_sendall(
            self._socket, b"".join(each.encode() for each in requests)
        )

    async def answers(self, count: int) -> list[Command]:
        found: list[Command] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                data = await asyncio.get_running_loop().sock_recv(self._socket, MIB)
                assert data, "the server ended the connection"
                found += map(decode, self._frames.feed(data))
        return found

    def close(self) -> None:
        self._socket.close()


async def settled(count: Callable[[], int]) -> None:
    """Wait until it has been the same for a while."""
    before = -1
    while before != count():
        before = count()
        await asyncio.sleep(0.2)


async def test_requests_of_a_peer_that_reads_nothing_wait_until_it_does() -> None:
    body, asked = bytes(64 * 1024), list[int]()

    def big(request: Command, connection: Connection) -> Command:
        asked.append(request.opaque)
        return request.answer(0, None, None, body)

    server = Server({BIG: big})
    peer = Peer(await server.listen("127.0.0.1", 0))
    await peer.connect()
    count = 2_000
    await peer.ask(*(Command(BIG, opaque=number) for number in range(count)))
    await settled(lambda: len(asked))

    assert 0 < len(asked) * len(body) < BUFFERED_MAX
    answers = await peer.answers(count)

    assert [answer.opaque for answer in answers] == asked == list(range(count))
    peer.close()
    await server.close()


async def test_thousands_of_requests_that_came_at_once_let_others_go_first() -> None:
    handled: list[str] = []

    def note(request: Command, connection: Connection) -> Command:
        handled.append(request.fields["of"])
        return request.answer(0)

    server = Server({BIG: note})
    port, count = await server.listen("127.0.0.1", 0), 3_000
    flood, other = Peer(port), Peer(port)
    await flood.connect()
    await other.connect()
    await flood.ask(*(Command(BIG, {"of": "flood"}) for _ in range(count)))
    await other.ask(Command(BIG, {"of": "other"}))
    await other.answers(1)
    await flood.answers(count)

    assert handled.index("other") < count // 2
    assert handled.count("flood") == count
    flood.close()
    other.close()
    await server.close()


def test_who_sends_much_has_a_part_of_each_turn_only() -> None:
    """uvloop by itself reads on and on where there is more to read, before it looks at others."""
    turns, request = [0], Command(BIG, {}, bytes(1024), flag=ONE_WAY)
    is_over = threading.Event()

    def note(request: Command, connection: Connection) -> None:
        turns[-1] += 1

    def next_turn() -> None:
        turns.append(0)
        asyncio.get_running_loop().call_soon(next_turn)

    def pour(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as link:
            while not is_over.is_set():
                link.sendall(request.encode() * 200)

    async def flooded() -> None:
        server = Server({BIG: note})
        pouring = asyncio.create_task(asyncio.to_thread(pour, await server.listen("127.0.0.1", 0)))
        next_turn()
        while sum(turns) < 100_000:
            await asyncio.sleep(0)
        is_over.set()
        await pouring
        await server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(flooded())
    assert max(turns) < 1_000


@pytest.fixture
async def cluster() -> AsyncIterator[roquet.dev.Cluster]:
    async with roquet.dev.Cluster() as cluster:
        yield cluster


async def fill(cluster: roquet.dev.Cluster, topic: str, body: bytes, count: int) -> None:
    async with roquet.Producer(cluster.name_server, "group", timeout_ms=SEND_MS_MAX) as producer:
        for _ in range(count):
            await producer.send(topic, body, queue=roquet.MessageQueue(topic, "dev", 0))


def held_pull(opaque: int, offset: int) -> Command:
    header = PullHeader("group", "T", 0, offset, 32, SUSPEND | SUBSCRIPTION, 0, 20_000, "*", 0)
    return Command(RequestCode.PULL_MESSAGE, header.write(), opaque=opaque)


async def test_pulls_of_a_peer_that_reads_nothing_go_on_waiting(
    cluster: roquet.dev.Cluster,
) -> None:
    """And are answered as soon as it reads, which is before they are looked at for any other
    reason.
    """
    await fill(cluster, "T", b"first", 1)
    port, long_polls = cluster.ask(lambda broker: (broker.port, broker.parts.long_polls))
    pulls = 300
    peer = Peer(port)
    await peer.connect()
    await peer.ask(*(held_pull(number, 1) for number in range(pulls)))
    async with asyncio.timeout(5):
        while long_polls.count < pulls:
            await asyncio.sleep(0.01)

    await fill(cluster, "T", random.randbytes(200_000), 1)
    await settled(lambda: long_polls.count)

    assert (pulls - long_polls.count) * 200_000 < BUFFERED_MAX
    answers = await peer.answers(pulls)
    assert {(answer.code, len(answer.body) > 200_000) for answer in answers} == {
        (ResponseCode.SUCCESS, True)
    }
    assert long_polls.count == 0
    peer.close()


async def test_a_flood_of_one_client_leaves_the_others_their_turn(
    cluster: roquet.dev.Cluster,
) -> None:
    """While a peer sends more than the broker can take, another one's sends are answered one after
    the other.
    """
    await fill(cluster, "T", b"first", 1)
    flood, stopping = Peer(cluster.ask(lambda broker: broker.port)), asyncio.Event()
    await flood.connect()
    fields = {
        "a": "flood",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "",
        "j": "0",
    }
    batch = [Command(RequestCode.SEND_MESSAGE_V2, fields, bytes(128), flag=2) for _ in range(1_000)]

    async def pour() -> None:
        while not stopping.is_set():
            await flood.ask(*batch)

    pouring = asyncio.create_task(pour())
    async with asyncio.timeout(60):
        await fill(cluster, "T", b"other", 50)
        stopping.set()
        await pouring

    assert cluster.ask(lambda broker: broker.store.max_offset("T", 0)) == 51
    assert cluster.ask(lambda broker: broker.store.max_offset("T", 1)) > 1_000
    flood.close()


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_more_connections_than_the_usual_limit_of_files_are_served(tmp_path: Path) -> None:
    """The limit that the system begins with is raised to what it allows."""
    path = tmp_path / "namesrv.conf"
    path.write_text(f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kvConfig.json\n")
    command = [sys.executable, "-m", "roquet.cli.main", "namesrv", "-c", str(path)]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=few_files
        ) as process,
        ExitStack() as stack,
    ):
        assert process.stdout is not None
        port = re.search(r":(\d+)$", process.stdout.readline())
        assert port is not None
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", int(port[1])), 10))
            for _ in range(200)
        ]
        for link in links:
            link.sendall(Command(RequestCode.GET_BROKER_CLUSTER_INFO).encode())
        answered = [link.recv(4) != b"" for link in links]
        process.terminate()

    assert answered == [True] * len(links)
