"""The cluster: name server, synchronous master and slave, each a process of its own on loopback."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

LOOPBACK: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 30.0
COMMIT_LOG_FILE_SIZE: Final = 64 * 1024 * 1024
ANY_SHARE: Final = 100
"""A laptop's drive may be nearly full: that is no reason to delete what the demo is about to
read.
"""


class Process:
    """One roquet command with its configuration file, started, killed and started again at will."""

    def __init__(self, role: str, command: str, settings: dict[str, object], folder: Path) -> None:
        self.role = role
        self.port = int(str(settings["listenPort"]))
        self._command = command
        self._folder = folder
        self._config = folder / f"{role}.conf"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Start it and wait until its port accepts.

        :raises RuntimeError: it ended, or took too long; the message holds the end of what it
            printed.
        """
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond
                [sys.executable, "-m", "roquet.cli.main", self._command, "-c", str(self._config)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while not await _accepts(self.port):
            if self._process.poll() is not None or asyncio.get_running_loop().time() > deadline:
                raise RuntimeError(f"{self.role} did not start:\n{self._log.read_text()[-2000:]}")
            await asyncio.sleep(0.05)

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.role}.log"

    def kill(self) -> None:
        """kill -9: no farewell, nothing flushed."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: a clean stop."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _free_port(*steps: int) -> int:
    """A port that is free together with those at the given distances."""
    while True:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if all(_is_free(port + step) for step in (0, *steps)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class ClusterOfThree:
    """Name server, SYNC_MASTER and SLAVE below one folder; all of them are stopped at the end."""

    def __init__(self, folder: Path) -> None:
        names = {
            "listenPort": _free_port(),
            "bindAddress": LOOPBACK,
            "kvConfigPath": folder / "kvConfig.json",
            "configStorePath": folder / "namesrv.properties",
        }
        self.name_server = Process("namesrv", "namesrv", names, folder)
        self.master = Process(
            "master", "broker", self._settings(folder, "master", "SYNC_MASTER", 0), folder
        )
        self.slave = Process("slave", "broker", self._settings(folder, "slave", "SLAVE", 1), folder)

    def _settings(self, folder: Path, name: str, role: str, broker_id: int) -> dict[str, object]:
        return {
            "brokerClusterName": "demo",
            "brokerName": "broker-a",
            "brokerId": broker_id,
            "brokerRole": role,
            "flushDiskType": "ASYNC_FLUSH",
            "namesrvAddr": self.name_server.address,
            "bindAddress": LOOPBACK,
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "listenPort": _free_port(-2, 1),
            "storePathRootDir": folder / name,
            "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE,
            "diskMaxUsedSpaceRatio": ANY_SHARE,
            "diskSpaceCleanForciblyRatio": ANY_SHARE,
            "diskSpaceWarningLevelRatio": ANY_SHARE,
            "maxHashSlotNum": 500_000,
            "maxIndexNum": 2_000_000,
        }

    async def __aenter__(self) -> Self:
        for process in (self.name_server, self.master, self.slave):
            await process.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (self.slave, self.master, self.name_server):
            process.stop()
