"""Codec of Java's properties syntax, which broker.conf and settings on the wire have.

`#` and `!` start a comment line. `=`, `:` or blanks end a name. A backslash at the end of a line
continues it; before any other character it escapes the character. Blanks before a value are
dropped, blanks after it belong to it, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_NAME: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES_OF_ESCAPED: Final = {
    "\\": "\\\\",
    **{character: f"\\{name}" for name, character in _ESCAPED.items()},
}
_SPECIAL_IN_VALUE: Final = re.compile(r"[\\\t\n\r\f]|^ +")
_SPECIAL_IN_NAME: Final = re.compile(r"[\\\t\n\r\f =:#!]")


@dataclass(frozen=True, slots=True)
class Properties:
    """Names and values in the order of the text; a repeated name has only its last value.

    `warnings` name lines that were probably not meant so.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def parse(text: str) -> Properties:
    r"""Parse a properties text.

    :raises ValueError: `\u` without four hex digits; the message names the line.
    """
    found: dict[str, tuple[str, int]] = {}
    warnings: list[str] = []
    for number, line in _logical_lines(text):
        name, value = _pair(line, number)
        if value != value.rstrip(_BLANKS):
            warnings.append(f"line {number}: the value of {name} ends in blanks")
        if name in found:
            warnings.append(
                f"line {number}: {name} is set again, "
                f"the value in line {found.pop(name)[1]} is not used"
            )
        found[name] = value, number
    return Properties(tuple((name, value) for name, (value, _) in found.items()), tuple(warnings))


def dump(pairs: Iterable[tuple[str, str]]) -> str:
    """Write a line `name=value` for each pair, escaped only where `parse` needs it."""
    return "".join(
        f"{_escaped(_SPECIAL_IN_NAME, name)}={_escaped(_SPECIAL_IN_VALUE, value)}\n"
        for name, value in pairs
    )


def changed(text: str, pairs: Mapping[str, str]) -> str:
    """A properties text with some values changed.

    A value replaces the one in the last line of its name; new names are added at the end. All else
    stays as it is.

    :raises ValueError: as `parse`.
    """
    lines = _LINE.findall(text)
    missing = dict(pairs)
    last = {_pair(line, number)[0]: number for number, line in _logical_lines(text)}
    for name in [name for name in pairs if name in last]:
        at = last[name] - 1
        lines[at], is_open = dump([(name, missing.pop(name))]), _goes_on(lines[at].rstrip("\r\n"))
        while is_open and (at := at + 1) < len(lines):
            lines[at], is_open = "", _goes_on(lines[at].rstrip("\r\n"))
    body = "".join(lines)
    if missing and body:
        body = body.rstrip("\r\n")
        body += "\n\n" if _goes_on(body) else "\n"
    return body + dump(missing.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with a pair, continued lines joined, each with the number of its first line."""
    lines = enumerate(_LINE_END.split(text), 1)
    for number, line in lines:
        joined = line.lstrip(_BLANKS)
        if not joined or joined[0] in "#!":
            continue
        while _goes_on(joined):
            _, following = next(lines, (0, ""))
            joined = joined[:-1] + following.lstrip(_BLANKS)
        yield number, joined


def _goes_on(line: str) -> bool:
    """Whether the line is continued: the last of its backslashes is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _pair(line: str, number: int) -> tuple[str, str]:
    name = _NAME.match(line)
    assert name is not None
    separator = _SEPARATOR.match(line, name.end())
    assert separator is not None
    return _unescaped(name.group(), number), _unescaped(line[separator.end() :], number)


def _unescaped(text: str, number: int) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape == "u":
            raise ValueError(
                f"line {number}: \\u needs four hex digits; a backslash is written \\\\"
            )
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(character, text) if "\\" in text else text


def _escaped(special: re.Pattern[str], text: str) -> str:
    return special.sub(
        lambda match: "".join(_NAMES_OF_ESCAPED.get(c, f"\\{c}") for c in match.group()), text
    )
