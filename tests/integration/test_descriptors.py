"""A server without a file descriptor left serves those that are connected, says so once, and
accepts again.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from roquet.protocol.remoting.command import Command
from tests.interop.apache import wait_until

pytestmark = pytest.mark.process

CHILD = """
import asyncio, logging, os, resource, sys
import uvloop
import roquet.transport.peers
from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from roquet.cli.serve import leave_refusals_to_the_server
from roquet.transport.server import Server

async def main():
    roquet.transport.peers.CALM_S = 5.0  # asyncio accepts again after 1 s, on a busy machine later
    logging.basicConfig(level=logging.WARNING)
    leave_refusals_to_the_server(asyncio.get_running_loop())
    server = Server({1: lambda request, _: request.answer(0)}, peers=Peers(PeerLimits(partial_request_timeout=300)))
    print(await server.listen("127.0.0.1", 0), flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 5,) * 2)
    await asyncio.Event().wait()

factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else None
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""


@contextmanager
def crowded_server(loop: str, log: Path) -> Iterator[int]:
    with log.open("w") as output:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, loop], stdout=subprocess.PIPE, stderr=output, text=True
        )
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline())
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


def is_served(peer: socket.socket) -> bool:
    peer.settimeout(5)
    try:
        peer.sendall(Command(1).encode())
        return bool(peer.recv(4096))
    except OSError:
        return False


def told(log: Path) -> list[str]:
    """Its lines, without who was refused, and without what a busy machine does to the loop."""
    lines = (line.partition(" peer=")[0] for line in log.read_text().splitlines())
    return [line for line in lines if "event loop held up" not in line]


@pytest.mark.skipif(sys.platform != "linux", reason="counts its descriptors in /proc")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_descriptor_left_is_told_once_and_gets_over(loop: str, tmp_path: Path) -> None:
    """Those that are too many are refused, or wait where a loop finds no descriptor to accept them
    with.
    """
    log = tmp_path / "log"

    def is_over() -> bool:
        text = log.read_text()
        return (
            "no connection can be accepted" not in text or "connections are accepted again" in text
        )

    with crowded_server(loop, log) as port, ExitStack() as peers:

        def is_admitted() -> bool:
            peer = socket.create_connection(("127.0.0.1", port))
            if is_served(peer):
                peers.enter_context(peer)
                return True
            peer.close()
            return False

        first = peers.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert is_served(first)
        with ExitStack() as crowd:
            for _ in range(12):
                crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
            wait_until(
                lambda: "raise the limit of open files" in log.read_text(), "the line in the log"
            )
            assert all(is_served(first) for _ in range(100))
        wait_until(is_admitted, "a connection that is served")
        wait_until(is_over, "the line that says so")
        assert is_served(first)
        assert len(told(log)) == len(set(told(log))), log.read_text()
