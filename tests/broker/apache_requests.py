"""What Apache's programs send, and the same requests with numbers at the borders of Java's ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, JSON, Command, decode

GOLDEN: Final = Path(__file__).parent.parent / "golden"
MAY_NOT_BE_ANSWERED: Final = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.END_TRANSACTION,
}
"""The first two for as long as they ask to wait; the last never was, where the producer does not
know yet.
"""

BEYOND_EVERY_RANGE: Final = (
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 5000,
    "1_0",
    "0x10",
    "NaN",
    "1e400",
)
BORDERS: Final = (
    *("-1", "0", "2147483647", "-2147483648", "2147483648", "-2147483649"),
    *("9223372036854775807", "-9223372036854775808", "+7", *BEYOND_EVERY_RANGE),
)


def known_requests() -> dict[int, list[Command]]:
    """What Apache's programs send, by code."""
    found: dict[int, list[Command]] = {}
    for path in sorted(GOLDEN.rglob("*.request.bin")):
        request = decode(path.read_bytes()[4:])
        found.setdefault(request.code, []).append(request)
    return found


KNOWN: Final = known_requests()


def number_fields(request: Command) -> list[str]:
    return [name for name, value in request.fields.items() if value.lstrip("-").isdecimal()]


def number_places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON document has a number."""
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        if isinstance(value, int) and not isinstance(value, bool):
            yield (*path, key)
        yield from number_places(value, (*path, key))


def variants(code: int) -> Iterator[tuple[Command, bool]]:
    """Known requests with another number in one place; whether no Java program would take it for
    one.
    """
    seen: set[tuple[str, ...]] = set()
    for known in KNOWN.get(code, [Command(code)]):
        names = number_fields(known)
        if tuple(names) in seen:
            continue
        seen.add(tuple(names))
        for number, name in enumerate(names):
            for value in BORDERS:
                form = (JSON, BINARY)[number % 2]
                fields = {**known.fields, name: value}
                yield (
                    Command(code, fields, known.body, version=409, header_type=form),
                    value in BEYOND_EVERY_RANGE,
                )
        try:
            document = json.loads(known.body)
        except ValueError:
            continue
        for path in list(number_places(document)):
            for value in BORDERS:
                changed = json.loads(known.body)
                inner = changed
                for step in path[:-1]:
                    inner = inner[step]
                inner[path[-1]] = "<number>"
                for text in (value, f'"{value}"'):
                    body = json.dumps(changed).replace('"<number>"', text).encode()
                    yield Command(code, dict(known.fields), body, version=409), False
