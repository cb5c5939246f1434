"""What a server's command says and how it ends, short of running one (tests/integration/test_cli.py
does).
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from roquet.cli.main import main
from roquet.cli.serve import serve
from roquet.errors import CannotListen, ConfigError, DriveFailed, StoreError


def write(folder: Path, text: str) -> Path:
    path = folder / "server.conf"
    path.write_text(text)
    return path


def test_the_settings_that_would_count_are_printed_as_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "listenPort=1234\n")

    result = CliRunner().invoke(main, ["namesrv", "-c", str(path), "-p"])

    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert "listenPort=1234" in lines
    assert "bindAddress=0.0.0.0" in lines
    assert f"configStorePath={path}" in lines


def test_what_a_file_says_in_vain_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "listenPort=1234 \nlistenPrt=1\n")

    result = CliRunner().invoke(main, ["namesrv", "-c", str(path), "-p"])

    assert result.exit_code == 0
    assert "listenPort=1234" in result.stdout.splitlines()
    assert result.stderr.splitlines() == [
        f"roquet: warning: {path}: line 1: the value of listenPort ends in blanks",
        f"roquet: warning: {path}: listenPrt is no setting known here, it has no effect; did you mean listenPort?",
    ]


def test_a_bad_value_ends_with_code_2_and_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "listenPort=0x10\n")

    result = CliRunner().invoke(main, ["namesrv", "-c", str(path)])

    assert result.exit_code == 2
    assert result.stderr == (
        f"roquet: listenPort=0x10 in {path}: allowed is a whole number in decimal digits from 0 up to 65535\n"
    )


def test_a_missing_file_ends_with_code_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["namesrv", "-c", str(tmp_path / "none.conf")])

    assert result.exit_code == 2
    assert result.stderr.startswith("roquet: configuration file ")


class Failing:
    """A server that cannot start."""

    port = 0
    ports = (0,)
    address = ""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def start(self) -> int:
        raise self._error

    async def stop(self) -> None:
        raise AssertionError("it never ran")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("brokerId=-1"), 2, "roquet: brokerId=-1"),
        (StoreError("store/lock is held"), 1, "roquet: store/lock is held"),
        (CannotListen("cannot listen on 127.0.0.1:80"), 1, "roquet: cannot listen on 127.0.0.1:80"),
        (
            OSError(30, "Read-only", "/s/lock"),
            1,
            "roquet: cannot run here: /s/lock: Read-only",
        ),
        (
            PermissionError(13, "denied", "/s"),
            1,
            "roquet: cannot run here: /s: denied",
        ),
        (OSError(28, "No space"), 1, "roquet: cannot run here: No space"),
        (DriveFailed("a sync has failed"), 74, "roquet: a sync has failed"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    error: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        serve("broker", "127.0.0.1", lambda stop: Failing(error))

    assert ended.value.code == code
    assert capsys.readouterr().err.splitlines() == [line]


class Brief:
    """A server that asks for its end as soon as it runs."""

    port = 10911
    ports = (10911, 10909, 10912)

    def __init__(self, stop: Callable[[], None], address: str) -> None:
        self._stop = stop
        self.address = address

    async def start(self) -> int:
        self._stop()
        return self.port

    async def stop(self) -> None:
        self.port = 0
        self.frozen = gc.get_freeze_count()


@pytest.mark.parametrize(
    ("host", "address", "line", "warnings"),
    [
        ("127.0.0.1", "127.0.0.1:10911", "ready on 127.0.0.1:10911", 0),
        (
            "0.0.0.0",
            "10.0.0.5:10911",
            "ready on 0.0.0.0:10911, advertised as 10.0.0.5:10911",
            1,
        ),
        ("10.0.0.5", "10.0.0.5:10911", "ready on 10.0.0.5:10911", 1),
    ],
)
def test_a_server_says_where_clients_find_it_and_who_may_come(
    host: str,
    address: str,
    line: str,
    warnings: int,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve("broker", host, lambda stop: Brief(stop, address))

    assert capsys.readouterr().out == f"roquet broker {line}\n"
    assert len(caplog.messages) == warnings
    for message in caplog.messages:
        assert "without authentication" in message
        assert f"bindAddress={host} ports=10911,10909,10912" in message


def test_what_a_server_loads_at_its_start_is_not_looked_through_for_garbage_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = list[Brief]()

    def make(stop: Callable[[], None]) -> Brief:
        servers.append(Brief(stop, "127.0.0.1:10911"))
        return servers[0]

    serve("broker", "127.0.0.1", make)

    assert servers[0].frozen > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("level", ["info", "ERROR"])
def test_the_log_level_is_an_option(level: str) -> None:
    """A script of its own: pytest has set up the log of this process."""
    script = (
        "import logging, os, signal\n"
        "from roquet.cli.serve import serve\n"
        "class Brief:\n"
        "    port, ports, address = 1, (1,), ''\n"
        "    def __init__(self, stop): self.start = self.stop = lambda: self.end(stop)\n"
        "    async def end(self, stop): stop()\n"
        f"serve('broker', '0.0.0.0', Brief, {level!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert ("without authentication" in done.stderr) is (level == "info")


def test_an_unknown_log_level_is_refused() -> None:
    result = CliRunner().invoke(main, ["dev", "--log-level", "loud"])

    assert result.exit_code == 2
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in result.stderr


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_no_machine_has_is_refused(port: str) -> None:
    result = CliRunner().invoke(main, ["dev", "--port", port])

    assert result.exit_code == 2
    assert f"{port} is not in the range 0<=x<=65535" in result.stderr


def test_a_store_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = CliRunner().invoke(main, ["dev", "--port", "0", "--store", str(tmp_path / "file")])

    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("roquet: ")]
    assert "file" in line
