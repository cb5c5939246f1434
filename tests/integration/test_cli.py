"""Servers as real processes: ready, asked, stopped by a signal."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LISTENING = re.compile(r"roquet namesrv ready on 127\.0\.0\.1:(\d+)\n")


def config_file(folder: Path, port: int = 0) -> Path:
    path = folder / "namesrv.conf"
    path.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={folder}/kvConfig.json\n")
    return path


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "roquet.cli.main", "namesrv", "-c", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_server_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with running(config_file(tmp_path)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = LISTENING.fullmatch(line)
        assert match is not None, line
        with socket.create_connection(("127.0.0.1", int(match.group(1))), timeout=5):
            process.send_signal(number)
            output, errors = process.communicate(timeout=10)

    assert process.returncode == 0
    assert (output, errors) == ("", "")


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(config_file(tmp_path, port)) as process:
            output, errors = process.communicate(timeout=10)

    assert process.returncode == 1
    assert output == ""
    assert errors == f"roquet: cannot listen on 127.0.0.1:{port}: Address already in use\n"
