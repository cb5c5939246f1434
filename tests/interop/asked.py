"""A Java program that answers line by line, so that one JVM is asked as often as one likes."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

from tests.interop.toolchain import Version, java, java_classpath


class AskedProgram:
    """A program of the Java driver, with Apache's classes of one release.

    :param main: its class.
    :param options: options of the JVM.
    """

    def __init__(self, main: str, version: Version, *options: str) -> None:
        self._process = subprocess.Popen(
            [str(java()), "-Xmx256m", *options, "-cp", java_classpath(version), main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        """The line that answers this one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
