"""The guide's consumer as a service, as a program of its own: SIGTERM lets its handlers end."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

import pytest

import roquet
from roquet.dev import Cluster
from tests.docs.pages import DOCS, blocks

PROGRAM: Final = blocks(DOCS / "guide" / "service.md", "python")[0].text
SLOWLY: Final = """
async def book(message):
    print("began", message.body.decode(), flush=True)
    await asyncio.sleep(SECONDS)
    print("booked", message.body.decode(), flush=True)
"""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a program at once there"),
]


def program(name_server: str, seconds: float) -> subprocess.Popen[str]:
    slowly = SLOWLY.replace("SECONDS", str(seconds))
    text = f"{PROGRAM}{slowly}\nasyncio.run(main({name_server!r}))\n"
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def committed(name_server: str) -> int:
    async with roquet.PullConsumer(name_server) as reader:
        queues = await reader.queues("invoices")
        offsets = [await reader.committed("billing", queue) for queue in queues]
        return sum(offset or 0 for offset in offsets)


async def test_the_first_signal_lets_the_handlers_end_and_stores_the_offsets() -> None:
    with Cluster() as cluster:
        async with roquet.connect(cluster.name_server) as mq:
            await mq.send("invoices", b"one")
        with program(cluster.name_server, 1) as process:
            assert line(process) == "began one"
            process.send_signal(signal.SIGTERM)
            assert line(process) == "booked one"
            assert process.wait(60) == 0
        assert await committed(cluster.name_server) == 1


async def test_a_second_signal_ends_the_program() -> None:
    with Cluster() as cluster:
        async with roquet.connect(cluster.name_server) as mq:
            await mq.send("invoices", b"one")
        with program(cluster.name_server, 600) as process:
            assert line(process) == "began one"
            while process.poll() is None:  # two signals at once may count as one
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
            assert process.returncode == -signal.SIGTERM
        assert await committed(cluster.name_server) == 0
