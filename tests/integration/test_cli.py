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

LISTENING = re.compile(r"roquet (?:namesrv|broker|dev) ready on 127\.0\.0\.1:(\d+)\n")
signals = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")


def config_file(folder: Path, port: int = 0) -> Path:
    path = folder / "namesrv.conf"
    path.write_text(
        f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={folder}/kvConfig.json\n"
    )
    return path


@pytest.fixture(autouse=True)
def hangup_is_not_ignored() -> Iterator[None]:
    """A process that is started under nohup, as these tests may be, ignores SIGHUP."""
    if hasattr(signal, "SIGHUP"):
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield
        signal.signal(signal.SIGHUP, before)
    else:
        yield


@contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "roquet.cli.main", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@signals
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_stops_a_server_cleanly(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    with running("namesrv", "-c", config_file(tmp_path)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = LISTENING.fullmatch(line)
        assert match is not None, line
        with socket.create_connection(("127.0.0.1", int(match.group(1))), timeout=5):
            process.send_signal(number)
            output, errors = process.communicate(timeout=10)

    assert process.returncode == 0
    assert (output, errors) == ("", "")


@signals
def test_a_broker_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "listenPort=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
        f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=1048576\n"
    )

    assert stopped_when_ready("broker", "-c", path) == 0
    assert (tmp_path / "store").is_dir()


@signals
def test_a_cluster_for_development_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    assert stopped_when_ready("dev", "--port", "0", "--store", tmp_path / "kept") == 0
    assert (tmp_path / "kept").is_dir()


@signals
def test_a_closed_terminal_leaves_no_temporary_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    assert stopped_when_ready("dev", "--port", "0", number=signal.Signals["SIGHUP"]) == 0
    assert list(tmp_path.glob("roquet-*")) == []


@signals
def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    """Whoever started the process has it ignore SIGHUP."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'roquet.cli.main', *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", code, "namesrv", "-c", str(config_file(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = LISTENING.fullmatch(process.stdout.readline())
        assert match is not None
        process.send_signal(signal.Signals["SIGHUP"])
        with socket.create_connection(("127.0.0.1", int(match.group(1))), timeout=5):
            assert process.poll() is None
        process.terminate()

    assert process.returncode == 0


def stopped_when_ready(*arguments: str | Path, number: signal.Signals = signal.SIGTERM) -> int:
    """What a server's process ends with when it is stopped as soon as it is ready."""
    with running(*arguments) as process:
        assert process.stdout is not None
        assert LISTENING.fullmatch(process.stdout.readline()) is not None
        process.send_signal(number)
        process.communicate(timeout=20)
    return process.returncode


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running("namesrv", "-c", config_file(tmp_path, port)) as process:
            output, errors = process.communicate(timeout=10)

    assert process.returncode == 1
    assert output == ""
    assert errors == (
        f"roquet: cannot listen on 127.0.0.1:{port} (name server, listenPort): Address already in use; "
        "end what listens there, or choose another port\n"
    )
