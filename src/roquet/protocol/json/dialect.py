"""fastjson's dialect of JSON, which Apache writes and reads: bare integer keys, objects as keys.

`load` reads standard JSON and the dialect. Keys are returned as text: a bare integer key as its
digits, an object key as compact JSON with sorted members (`load` it again to get the object).
`$ref` members are replaced by what they refer to, unless the result would be far larger than the
text.

See docs/protocol/json.md#what-java-writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

try:
    import orjson
except ImportError:  # no wheel for this Python: the standard library does the same, slower
    orjson = None  # type: ignore[assignment]  # asked for before each use

_DEPTH_MAX: Final = 64
_RESOLVED_VALUES_FLOOR: Final = 1000
"""Resolving references may yield as many values as the text has characters; this many if it is
shorter. A text without references has at most half as many values as characters.
"""
_DIGITS_MAX: Final = 400
"""Digits of a number. Java's longest double has fewer; Python refuses integers of thousands."""


if orjson is not None:

    def dump_bytes(value: object) -> bytes:
        """Compact standard JSON, UTF-8."""
        return orjson.dumps(value)

    def load_standard(text: bytes | str) -> Any:
        """Standard JSON.

        :raises ValueError: it is not.
        """
        return orjson.loads(text)

else:
    _HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")

    def _no_constant(name: str) -> Any:
        raise ValueError(f"JSON has no {name}")

    def _finite(text: str) -> float:
        number = float(text)
        if not isfinite(number):
            raise ValueError(f"JSON: {text[:40]} is no double")
        return number

    def dump_bytes(value: object) -> bytes:
        """Compact standard JSON, UTF-8."""
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    def load_standard(text: bytes | str) -> Any:
        """Standard JSON.

        :raises ValueError: it is not.
        """
        if isinstance(text, bytes):
            text = text.decode()
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if _HALF_PAIR.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # refuses half of a surrogate pair
        return value


def dump_ascii(value: object) -> bytes:
    r"""Encode as compact standard JSON in ASCII, with `\uXXXX`, for the strictest parsers."""
    return json.dumps(value, separators=(",", ":")).encode()


class IntKeys(dict[int, Any]):
    """An object whose integer keys `dump_dialect` writes without quotes, as fastjson: `{0:"a"}`."""


class ObjectKeys(dict[str, Any]):
    """An object whose keys are JSON objects as text, written as they are: `{{"topic":"T"}:5}`."""


def dump_dialect(value: object) -> bytes:
    """Encode as compact JSON; only `IntKeys` and `ObjectKeys` are written in fastjson's dialect."""
    return _dialect(value).encode()


def _dialect(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_dialect, value)) + "]"
    if not isinstance(value, Mapping):
        return _scalar(value)
    is_bare = isinstance(value, IntKeys | ObjectKeys)
    members = (
        f"{key if is_bare else _scalar(str(key))}:{_dialect(item)}" for key, item in value.items()
    )
    return "{" + ",".join(members) + "}"


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def dump_indented(value: object) -> bytes:
    """Encode as in Apache's state files: a line per member, indented by tabs.

    Members of `IntKeys` and `ObjectKeys` are on one line.
    """
    return _indented(value, 0).encode()


def _indented(value: object, depth: int) -> str:
    if isinstance(value, list | tuple):
        return "[" + ",".join(_indented(item, depth + 1) for item in value) + "]"
    if not isinstance(value, Mapping):
        return _scalar(value)
    if not value:
        return "{}"
    line = "\n" + "\t" * depth
    if isinstance(value, IntKeys):
        keys: Iterable[object] = value
    elif isinstance(value, ObjectKeys):
        keys = [_indented(load_standard(key), depth + 1) for key in value]
    else:
        keys = [f"{line}\t{_scalar(str(key))}" for key in value]
    members = [
        f"{key}:{_indented(item, depth + 1)}"
        for key, item in zip(keys, value.values(), strict=True)
    ]
    return "{" + ",".join(members) + line + "}"


def load(text: bytes | str, dialect_values_max: int | None = None) -> Any:
    """Decode standard JSON or fastjson's dialect.

    :param dialect_values_max: how many values a text in the dialect may have, keys included. In a
        text that is otherwise standard, only bare integer keys count. Python code reads what
        counts, a hundred times slower than standard JSON. None: no limit.
    :raises ValueError: the text is neither; the message says what was found where.
    """
    try:
        document = load_quick(text, dialect_values_max)
    except (ValueError, RecursionError):
        document = _Reader(
            text.decode() if isinstance(text, bytes) else text, dialect_values_max
        ).document()
    has_references = b'"$ref"' in text if isinstance(text, bytes) else '"$ref"' in text
    return (
        _References(document, max(len(text), _RESOLVED_VALUES_FLOOR)).resolved()
        if has_references
        else document
    )


_BARE_KEY: Final = re.compile(r"([{,]\s*)(-?[1-9]\d{0,18}|0)(\s*:)")
_BARE_KEY_BYTES: Final = re.compile(_BARE_KEY.pattern.encode())


def load_quick(text: bytes | str, bare_keys_max: int | None = None) -> Any:
    """Decode JSON that is standard except for bare integer keys. References are not resolved.

    Whatever looks like a bare key gets quotes. If it was inside a string, the first quote ends that
    string and a digit follows, so the result is not JSON and is never read wrongly.

    :param bare_keys_max: bare keys that the text may have; None: no limit.
    :raises ValueError: the text is not such JSON, or has more bare keys.
    """
    try:
        return load_standard(text)
    except (ValueError, RecursionError):
        # One more than allowed shows that there are too many. `subn` takes 0 as no limit.
        count = 0 if bare_keys_max is None else bare_keys_max + 1
        quoted: bytes | str
        if isinstance(text, bytes):
            quoted, found = _BARE_KEY_BYTES.subn(rb'\1"\2"\3', text, count)
        else:
            quoted, found = _BARE_KEY.subn(r'\1"\2"\3', text, count)
        if not found or found == count:
            raise
        return load_standard(quoted)


_BLANK: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_WORD: Final = re.compile(r"[a-z]+")
_SINGLE_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_REQUOTED: Final = re.compile(r"\\.|\"", re.DOTALL)


def _requoted(match: re.Match[str]) -> str:
    """What an escape or `"` of a single-quoted string becomes in a double-quoted one."""
    return {'"': '\\"', "\\'": "'"}.get(match.group(), match.group())


class _Reader:
    """Recursive descent parser of the dialect; `_at` is the index of the next character.

    Invariant: at most `values_max` values are read, keys included. An object key contains no object
    key: the inner text would be escaped at each level and double in length.
    """

    def __init__(self, text: str, values_max: int | None = None) -> None:
        self._text = text
        self._at = 0
        self._is_in_key = False
        self._values_max = len(text) if values_max is None else values_max
        self._values_left = self._values_max

    def document(self) -> Any:
        value = self._value(0)
        self._skip_blanks()
        if self._at < len(self._text):
            raise self._wrong("the end")
        return value

    def _wrong(self, wanted: str) -> ValueError:
        found = self._text[self._at : self._at + 12] or "the end"
        return ValueError(f"JSON: wanted {wanted} at character {self._at}, found {found!r}")

    def _skip_blanks(self) -> None:
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _peek(self) -> str:
        self._skip_blanks()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise ValueError(f"JSON: nested deeper than {_DEPTH_MAX}")
        first = self._peek()
        # Before the count: in a text as short as "{" the missing value would exceed the limit.
        if not first:
            raise self._wrong("a value")
        self._values_left -= 1
        if self._values_left < 0:
            raise ValueError(f"JSON: not standard JSON, and more than {self._values_max} values")
        match first:
            case "{":
                return self._object(depth)
            case "[":
                return self._list(depth)
            case '"' | "'":
                return self._string()
            case _:
                return self._number_or_word()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            return members
        while True:
            key = self._key(depth + 1)
            self._expect(":")
            members[key] = self._value(depth + 1)
            if not self._more("}"):
                return members

    def _key(self, depth: int) -> str:
        if self._peek() == "{":
            if self._is_in_key:
                raise self._wrong("a text or an integer as key, inside of a key")
            self._is_in_key = True
            key = self._value(depth)
            self._is_in_key = False
            return json.dumps(key, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        key = self._value(depth)
        if type(key) not in (str, int):
            raise self._wrong("a text, an integer or an object as key before this")
        return str(key)

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return items
        while True:
            items.append(self._value(depth + 1))
            if not self._more("]"):
                return items

    def _more(self, close: str) -> bool:
        found = self._peek()
        if found not in (",", close):
            raise self._wrong(f"',' or {close!r}")
        self._at += 1
        return found == ","

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._wrong(repr(character))
        self._at += 1

    def _string(self) -> str:
        if self._text[self._at] == '"':
            scan = json.decoder.scanstring  # type: ignore[attr-defined]  # typeshed lacks it
            text, self._at = scan(self._text, self._at + 1, False)
        else:
            match = _SINGLE_QUOTED.match(self._text, self._at)
            if match is None:
                raise self._wrong("a closing quote")
            self._at = match.end()
            text = json.loads('"' + _REQUOTED.sub(_requoted, match.group(1)) + '"', strict=False)
        text.encode()  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
        return str(text)

    def _number_or_word(self) -> Any:
        match = _NUMBER.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            digits = match.group()
            is_long = len(digits) > _DIGITS_MAX
            number = int(digits) if digits.lstrip("-").isdigit() and not is_long else float(digits)
            if is_long or (isinstance(number, float) and not isfinite(number)):
                raise ValueError(f"JSON: the number {digits[:40]} is too large")
            return number
        word = _WORD.match(self._text, self._at)
        if word is None or word.group() not in _WORDS:
            raise self._wrong("a value")
        self._at = word.end()
        return _WORDS[word.group()]


_STEP: Final = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)|\[(\d+)\]")
_ESCAPED: Final = re.compile(r"\\(.)")


class _References:
    """Replaces each `{"$ref": path}` of a document by the value at that path from the root `$`.

    Referenced values may contain references: without a limit, a short text could expand to any
    number of values. A referenced value is one object, however often it is used, but readers visit
    it once per use.

    Invariant: the result has at most `values_max` values; a referenced value counts at each use.
    """

    def __init__(self, document: Any, values_max: int) -> None:
        self._document = document
        self._values_max = values_max
        self._values_left = values_max
        self._known: dict[str, tuple[Any, int]] = {}
        """Path -> the resolved value, and how many values it has."""

    def resolved(self) -> Any:
        """Return the document without references.

        :raises ValueError: a reference leads nowhere or into itself, or the result is too large.
        """
        return self._resolved(self._document, 0)

    def _resolved(self, value: Any, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise ValueError(
                f"JSON: nested deeper than {_DEPTH_MAX}, or a reference to what it is part of"
            )
        if isinstance(value, dict) and list(value) == ["$ref"]:
            return self._referenced(value["$ref"], depth + 1)
        self._count(1)
        if isinstance(value, dict):
            return {key: self._resolved(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item, depth + 1) for item in value]
        return value

    def _referenced(self, path: Any, depth: int) -> Any:
        if not isinstance(path, str) or not path.startswith("$"):
            raise ValueError(f"JSON: reference {str(path)[:100]!r} is not a path from the root")
        known = self._known.get(path)
        if known is not None:
            self._count(known[1])
            return known[0]
        before = self._values_left
        value = self._resolved(_value_at(self._document, path), depth)
        self._known[path] = value, before - self._values_left
        return value

    def _count(self, values: int) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise ValueError(
                f"JSON: references make more than {self._values_max} values "
                "of a text of that length"
            )


def _value_at(document: Any, path: str) -> Any:
    value, at = document, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(f"JSON: reference {path[:100]!r} cannot be followed")
        name, index = step.groups()
        try:
            value = value[_ESCAPED.sub(r"\1", name)] if name is not None else value[int(index)]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"JSON: reference {path[:100]!r} leads nowhere") from error
        at = step.end()
    return value
