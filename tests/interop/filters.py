"""Apache's own SQL92 filters, asked as often as one likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from tests.interop.asked import AskedProgram
from tests.interop.toolchain import Version

READABLE: Final = " '\"<>()*/,;:.$!?-_|[]{}"
"""What stands in a line as it is, beside letters and digits; `=`, too, in an expression."""
REFUSED: Final = "-"
"""Apache's answer to an expression that does not compile."""
VERDICTS: Final[Mapping[str, bool | None]] = {"t": True, "f": False, "n": None}
"""What a letter of an answer says; `x`, which is not among them: the expression throws."""


class ApacheFilters(AskedProgram):
    """Apache's filters of one release, in a process of their own."""

    def __init__(self, version: Version = Version.V4) -> None:
        super().__init__("roquet.Filters", version)

    def table(self, messages: Iterable[Mapping[str, str]], expressions: Iterable[str]) -> list[str]:
        """A line for each message, then one for each expression with a letter for each message
        before it.
        """
        asked = [message_line(message) for message in messages]
        asked += [f"E\t{quote(expression, READABLE + '=')}" for expression in expressions]
        return [self.ask(line) for line in ("C\t", *asked)][1:]

    def bloom(self, error_percent: int, expected: int, text: str) -> str:
        """Parameters and text of a Bloom filter, how many bits it has, and which of them are the
        text's.
        """
        return self.ask(f"B\t{error_percent}\t{expected}\t{quote(text, READABLE)}")


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
