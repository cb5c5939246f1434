"""The program of a client as a process: told what to do line by line, and asked what it did."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

from bench.client_loads import Client, Way
from bench.programs import PYTHON
from tests.interop.toolchain import class_paths, go_program, java, python_packages

HERE: Final = Path(__file__).parent
SECONDS_MAX: Final = 300.0
"""For one piece of work; a client that takes longer is killed."""


class Done(NamedTuple):
    """`first_ms` is from the first statement of the program to its first acknowledged message."""

    messages: int
    seconds: float
    failed: int
    first_ms: float


@cache
def command(client: Client) -> tuple[str, ...]:
    """Each as a user runs it, without any tuning."""
    match client:
        case Client.JAVA:
            jars = class_paths("client-java", HERE / "client" / "java", ("client",))["client"]
            return (str(java()), "-cp", jars, "roquet.ClientLoad")
        case Client.GO:
            return (str(go_program("client-go", HERE / "client" / "go")),)
        case Client.CPP:
            return (sys.executable, "-P", str(HERE / "client_cpp.py"))
        case Client.ROQUET | Client.UVLOOP:
            return (sys.executable, "-P", str(HERE / "client_roquet.py"))


def environment(client: Client, home: Path, source: Path | None) -> dict[str, str]:
    """Logs go below `home`. `source`: the `src` folder of another state of roquet."""
    given = PYTHON | {"HOME": str(home), "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"}
    given |= {"NAMESRV_ADDR": "", "ROCKETMQ_GO_LOG_LEVEL": "error"}
    if client is Client.CPP:
        given["PYTHONPATH"] = str(python_packages("client-cpp", HERE / "client" / "cpp"))
    elif source is not None:
        given["PYTHONPATH"] = str(source)
    return os.environ | given


class Driver:
    """Running from construction to the end of its `with` block."""

    def __init__(
        self,
        client: Client,
        names: str,
        topic: str,
        way: Way,
        under_way: int,
        home: Path,
        source: Path | None = None,
    ):
        home.mkdir(parents=True, exist_ok=True)
        self._client = client
        self._errors = home / f"{client}-errors"
        loop = ["uvloop"] if client is Client.UVLOOP else []
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [*command(client), names, topic, way, str(under_way), *loop],
                cwd=home,
                env=environment(client, home, source),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, word: str, argument: float) -> Done:
        """Returns when the program says that it is done."""
        self._tell(f"{word} {argument}")
        guard = threading.Timer(SECONDS_MAX, self._process.kill)
        guard.start()
        try:
            line = self._stdout.readline()
        finally:
            guard.cancel()
        if not line:
            raise self._failure("ended")
        messages, seconds, failed, first_ms = line.split()
        return Done(int(messages), float(seconds), int(failed), float(first_ms))

    def end(self) -> None:
        """Let it close its client and end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        guard = threading.Timer(SECONDS_MAX, self._process.kill)
        guard.start()
        status = self._process.wait()
        guard.cancel()
        if status:
            raise self._failure(f"ended with {status}")

    def _failure(self, what: str) -> RuntimeError:
        return RuntimeError(f"{self._client} {what}: {self._errors.read_text()[-500:]}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._stdout):
            if pipe is not None:
                with suppress(OSError):  # It ended before it took all that it was told.
                    pipe.close()
