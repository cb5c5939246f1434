"""Programs as child processes: each in a directory of its own, with its output in a file and an end
that is certain.

Invariant: whatever was started here is dead when its `with` block, or this interpreter, ends.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

STOP_SECONDS_MAX = 20.0
SECONDS = 180
"""So long what is expected may take: beside other work a host may need a minute to start Java."""
POLL_SECONDS = 0.05
SEND_MS_MAX = 60_000
"""A busy host may let a process wait for longer than the 3 s that a client's send has by itself."""
PORTS = range(
    20_000, 30_000
)  # Below the range from which systems draw the ports of outgoing connections.
CLAIMS_MAX = 60
"""Ports are claimed until so many others were: by then a program has bound them."""
_claims: deque[socket.socket] = deque()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = SECONDS) -> None:
    """Returns as soon as the condition holds; TimeoutError names what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(POLL_SECONDS)


def free_port(*neighbours: int) -> int:
    """A port that can be bound on loopback, and so can the ports at these distances from it.

    Nobody else on this machine who asks here gets one of them, too, for as long as it takes a
    program to bind them.
    """
    while True:
        port = random.choice(PORTS)
        claims = [
            claim
            for distance in (0, *neighbours)
            if (claim := _claimed(port + distance)) is not None
        ]
        if len(claims) == 1 + len(neighbours):
            _claims.extend(claims)
            _give_up(len(_claims) - CLAIMS_MAX)
            return port
        for claim in claims:
            claim.close()


def _give_up(count: int) -> None:
    """The oldest claims."""
    for _ in range(count):
        _claims.popleft().close()


atexit.register(lambda: _give_up(len(_claims)))


def _claimed(port: int) -> socket.socket | None:
    """What keeps the port from others: a datagram socket of that number, which no program here
    needs.
    """
    claim = socket.socket(type=socket.SOCK_DGRAM)
    try:
        claim.bind(("127.0.0.1", port))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return None
    return claim


@dataclass(frozen=True)
class Host:
    """Where programs run: its address, and the words that bring a command there."""

    ip: str
    prefix: tuple[str, ...] = ()


LOOPBACK = Host("127.0.0.1")


class Program:
    """One program that may be started, stopped, killed and started again in the same directory.

    Leaving its `with` block kills it: what wants an orderly end calls `stop()` first.
    """

    def __init__(self, name: str, directory: Path | None = None, host: Host = LOOPBACK) -> None:
        self.name = name
        self.host = host
        self._temporary = (
            tempfile.TemporaryDirectory(prefix=f"roquet-{name}-") if directory is None else None
        )
        self.directory = Path(self._temporary.name) if self._temporary else directory or Path()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def launch(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        listens: bool = False,
    ) -> None:
        """Starts it; one that listens is told more by `tell`."""
        assert not self.alive, f"{self.name} runs already"
        self._hang_up()
        with open(self.directory / "out", "ab") as out, open(self.directory / "err", "ab") as err:
            self._process = subprocess.Popen(
                [*self.host.prefix, *command],
                cwd=self.directory,
                env=os.environ | dict(environment or {}),
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        _running.add(self)

    def tell(self, line: str) -> None:
        """A line for its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _hang_up(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # It ended before it took all that it was told.
                self._process.stdin.close()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return None if self._process is None else self._process.poll()

    def output(self) -> str:
        return (self.directory / "out").read_text(errors="replace")

    def errors(self) -> str:
        return (self.directory / "err").read_text(errors="replace")

    def log(self) -> str:
        """What it wrote to standard error, then standard output: for the message of a failure."""
        return self.errors() + self.output()

    def wait_ready(
        self, condition: Callable[[], bool], what: str, timeout_s: float = SECONDS
    ) -> None:
        """As `wait_until`, but gives up at once when the program has ended."""

        def ready_or_dead() -> bool:
            return not self.alive or condition()

        try:
            wait_until(ready_or_dead, f"{self.name}: {what}", timeout_s)
        except TimeoutError as late:
            self.kill()
            raise TimeoutError(f"{late}; its output ends:\n{self.log()[-4000:]}") from None
        if not self.alive and not condition():
            raise RuntimeError(
                f"{self.name} ended with {self.status} before {what}:\n{self.log()[-4000:]}"
            )

    def wait_end(self, timeout_s: float) -> int:
        """Its exit status; killed and a TimeoutError if it takes too long."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(
                f"{self.name} took over {timeout_s:.0f} s:\n{self.log()[-4000:]}"
            ) from None

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that takes too long."""
        if self._process is not None and self.alive:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        _running.discard(self)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        _running.discard(self)

    def close(self) -> None:
        self.kill()
        self._hang_up()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_running: set[Program] = set()


@atexit.register
def _kill_all() -> None:
    for program in list(_running):
        program.kill()


@dataclass(frozen=True)
class Finished:
    """How a client ended; `lines` are the JSON objects it printed, in order."""

    status: int
    lines: list[dict[str, Any]]
    log: str

    def check(self) -> list[dict[str, Any]]:
        assert self.status == 0, f"ended with {self.status}: {self.lines[-3:]}\n{self.log[-4000:]}"
        return self.lines


class Client(Program):
    """A driver in its own process, printing a JSON object per line and `started` on standard
    error.
    """

    def lines(self) -> list[dict[str, Any]]:
        """What it printed so far; a line still being written is left for the next look."""
        complete = [line for line in self.output().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in complete if line.startswith("{")]

    def wait_started(self, timeout_s: float = SECONDS) -> None:
        self.wait_ready(lambda: "started" in self.errors(), "start", timeout_s)

    def wait_lines(self, count: int, timeout_s: float = SECONDS) -> list[dict[str, Any]]:
        self.wait_ready(lambda: len(self.lines()) >= count, f"{count} lines", timeout_s)
        return self.lines()

    def finish(self, timeout_s: float = SECONDS + 60) -> Finished:
        """Waits for its end."""
        status = self.wait_end(timeout_s)
        return Finished(status, self.lines(), self.log())


class Session(Client):
    """A driver that stays and runs one command after the other, which spares the start of a JVM for
    each.
    """

    def __init__(self, name: str, directory: Path | None = None) -> None:
        super().__init__(name, directory)
        self._read_to = 0
        self._lines: list[dict[str, Any]] = []
        self._status: int | None = 0

    def run(self, *words: object, timeout_s: float = SECONDS + 60) -> Finished:
        """One command to its end."""
        self.begin(*words)
        return self.finish(timeout_s)

    def begin(self, *words: object) -> None:
        """Starts a command; `lines` and `wait_lines` see what it prints, `finish` waits for its
        end.
        """
        assert self._status is not None, f"{self.name} is still at work"
        self._lines, self._status = [], None
        self.tell("\t".join(map(str, words)))

    def lines(self) -> list[dict[str, Any]]:
        """What the present command, or the last one, printed so far."""
        self._read()
        return list(self._lines)

    def finish(self, timeout_s: float = SECONDS + 60) -> Finished:
        self.wait_ready(self._has_ended, "the end of a command", timeout_s)
        assert self._status is not None
        return Finished(self._status, list(self._lines), self.log())

    def _has_ended(self) -> bool:
        self._read()
        return self._status is not None

    def _read(self) -> None:
        with open(self.directory / "out", "rb") as out:
            out.seek(self._read_to)
            complete = out.read().rpartition(b"\n")[0]
        self._read_to += len(complete) + 1 if complete else 0
        for line in complete.split(b"\n"):
            if line.startswith(b"{"):
                printed = json.loads(line)
                if "ended" in printed:
                    self._status = printed["ended"]
                else:
                    self._lines.append(printed)
