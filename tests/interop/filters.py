"""Apache's own SQL92 filters, asked as often as one likes: one JVM answers line by line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, unquote

from tests.interop.toolchain import Version, java, java_classpath

READABLE: Final = " '\"<>()*/,;:.$!?-_|[]{}"
"""What stands in a line as it is, beside letters and digits; `=`, too, in an expression."""
REFUSED: Final = "-"
"""Apache's answer to an expression that does not compile."""
VERDICTS: Final[Mapping[str, bool | None]] = {"t": True, "f": False, "n": None}
"""What a letter of an answer says; `x`, which is not among them: the expression throws."""


class ApacheFilters:
    """Apache's filters of one release, in a process of their own."""

    def __init__(self, version: Version = Version.V4) -> None:
        command = [str(java()), "-Xmx256m", "-cp", java_classpath(version), "roquet.Filters"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def table(self, messages: Iterable[Mapping[str, str]], expressions: Iterable[str]) -> list[str]:
        """A line for each message, then one for each expression with a letter for each message
        before it.
        """
        asked = [message_line(message) for message in messages]
        asked += [f"E\t{quote(expression, READABLE + '=')}" for expression in expressions]
        return [self._ask(line) for line in ("C\t", *asked)][1:]

    def bloom(self, error_percent: int, expected: int, text: str) -> str:
        """Parameters and text of a Bloom filter, how many bits it has, and which of them are the
        text's.
        """
        return self._ask(f"B\t{error_percent}\t{expected}\t{quote(text, READABLE)}")

    def _ask(self, line: str) -> str:
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


def message_line(properties: Mapping[str, str]) -> str:
    return "P\t" + "&".join(
        f"{quote(name, READABLE)}={quote(value, READABLE)}" for name, value in properties.items()
    )


def read_table(lines: Iterable[str]) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """The messages of a table, and its expressions, each with what Apache's program answered."""
    messages: list[dict[str, str]] = []
    answers: list[tuple[str, str]] = []
    for line in lines:
        head, _, text = line.partition("\t")
        if head == "P":
            pairs = [pair.partition("=") for pair in text.split("&") if pair]
            messages.append({unquote(name): unquote(value) for name, _, value in pairs})
        else:
            answers.append((unquote(text), head))
    return messages, answers
