"""Apache's Java clients, many in one JVM for each release, told what to do by scenarios that run
beside each other.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tests.interop.apache import CLIENT_JVM, Version, launch_java
from tests.interop.processes import Client

Line = dict[str, Any]
LOOK_SECONDS = 0.02
ANSWER_SECONDS_MAX = 90.0


class JavaError(Exception):
    """A client's exception: its class, the response code where it has one, and its message."""

    def __init__(self, kind: str, code: int | None, message: str) -> None:
        super().__init__(f"{kind} {code}: {message}")
        self.kind = kind
        self.code = code
        self.message = message


class Stage(Client):
    """A JVM with clients of one release, each under a name.

    Invariant: commands may be given by several threads at a time; each gets the answer to its own.
    """

    def __init__(self, version: Version) -> None:
        super().__init__(f"stage-{version}")
        self.version = version
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._answers: dict[str, Line] = {}
        self._events: defaultdict[tuple[str, str], list[Line]] = defaultdict(list)
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._ended = False

    def __enter__(self) -> Self:
        launch_java(self, self.version, "roquet.Stage", (), (*CLIENT_JVM, "-Xmx512m"), listens=True)
        self.wait_started()
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        self._reader.join()
        super().__exit__(kind, error, trace)

    def call(self, verb: str, **values: object) -> Any:
        """What the command answers. :raises JavaError: it failed, with an exception there."""
        number = str(next(self._ids))
        words = [
            f"{name}={quote(_text(value))}" for name, value in values.items() if value is not None
        ]
        with self._changed:
            assert self.alive, f"{self.name} ended with {self.status}: {self.errors()[-2000:]}"
            self.tell("\t".join((number, verb, *words)))
            if not self._changed.wait_for(
                lambda: number in self._answers or not self.alive, ANSWER_SECONDS_MAX
            ):
                raise TimeoutError(f"no answer to {verb} {values} in {ANSWER_SECONDS_MAX:.0f} s")
            answer = self._answers.pop(number, None)
        assert answer is not None, f"{self.name} ended with {self.status}: {self.log()[-4000:]}"
        if "error" in answer:
            raise JavaError(answer["error"], answer["code"], answer["message"])
        return answer["answer"]

    def events(self, name: str, event: str) -> list[Line]:
        """What a client told of so far."""
        with self._changed:
            return list(self._events[name, event])

    def wait_events(self, name: str, event: str, count: int, timeout_s: float) -> list[Line]:
        """As soon as there are so many; fewer when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events[name, event]) >= count, timeout_s)
            return list(self._events[name, event])

    def _read(self) -> None:
        with open(self.directory / "out", "rb") as out:
            rest = b""
            while not self._ended:
                piece = out.read()
                if not piece:
                    time.sleep(LOOK_SECONDS)
                    continue
                *lines, rest = (rest + piece).split(b"\n")
                self._take([json.loads(line) for line in lines if line.startswith(b"{")])

    def _take(self, lines: list[Line]) -> None:
        with self._changed:
            for line in lines:
                if "id" in line:
                    self._answers[line["id"]] = line
                else:
                    self._events[line["from"], line["event"]].append(line)
            self._changed.notify_all()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
