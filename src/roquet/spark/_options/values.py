"""PURE: parses option names and the kinds of option values that several formats share.

Invariants:
- An invalid option raises `OptionError`, which names the option and says which values are valid.
- No error text contains the value of a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, NoReturn, TypeAlias

from roquet.admin.access import ACCESS_FILE, NAMES, Access, access_of
from roquet.errors import ConfigError, MessageError, OptionError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.message import check_group, check_topic
from roquet.spark._options.queue_json import whole_number

ACCESS_NAMES: Final = (ACCESS_FILE, *NAMES)
"""The options for access keys and TLS. accessFile never arrives here:
`roquet.admin.access.with_access_file` has replaced it by the options in the file.
"""
_BODY_MAX: Final = 1 << 30
"""1 GiB: an Arrow binary column has 32-bit offsets, so it holds less than 2 GiB per batch."""
Parsers: TypeAlias = Mapping[str, tuple[str, Callable[[str, str], object]]]
"""Option -> the field that it sets, and the parser of its value."""
_NO_ALIASES: Final[Mapping[str, str]] = {}


class Mode(Enum):
    """Whether damaged data fails the read (FAILFAST) or is logged and skipped (PERMISSIVE).

    PERMISSIVE produces a row for damaged data if the schema has the column `_corrupt`.
    """

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


def by_documented_name(
    options: Mapping[str, str], names: Iterable[str], aliases: Mapping[str, str] = _NO_ALIASES
) -> dict[str, str]:
    """The options by their documented names, with blanks around the values removed.

    :param options: from Spark, which lowers the case of names.
    :param names: all options, spelt as in the documentation.
    :param aliases: other name -> documented name.
    :raises OptionError: an option is unknown, or is given under two names.
    """
    spelt = {name.lower(): name for name in (*names, *aliases)}
    values: dict[str, str] = {}
    givers: dict[str, str] = {}
    for given, value in options.items():
        spelling = spelt.get(given.lower())
        if spelling is None:
            _unknown(given, spelt)
        name = aliases.get(spelling, spelling)
        if name in values:
            raise OptionError(
                f"{givers[name]} and {spelling} are the same option: give one of them"
            )
        values[name], givers[name] = value.strip(), spelling
    return values


def parsed(values: Mapping[str, str], parsers: Parsers) -> dict[str, Any]:
    """The fields that the given options set."""
    return {
        field: parse(name, values[name])
        for name, (field, parse) in parsers.items()
        if name in values
    }


def _unknown(given: str, spelt: Mapping[str, str]) -> NoReturn:
    close = get_close_matches(given.lower(), spelt, n=1, cutoff=0.6)
    if close:
        raise OptionError(f"unknown option {given}: did you mean {spelt[close[0]]}?")
    raise OptionError(
        f"unknown option {given}: the options are {', '.join(sorted(spelt.values()))}"
    )


def name_server(values: Mapping[str, str]) -> str:
    """The addresses in the option nameServer, separated by semicolons.

    :raises OptionError: there is none, or one is no host:port.
    """
    addresses = listed(values.get("nameServer", "").replace(";", ","))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not 0 < (whole_number(port) or 0) < 65536:
            raise OptionError(f"nameServer: {address!r} is no host:port, such as localhost:9876")
    if not addresses:
        raise OptionError(
            "nameServer is missing: give the name servers as host:port, separated by semicolons"
        )
    return ";".join(addresses)


def listed(text: str) -> tuple[str, ...]:
    """The parts of a list with commas, without duplicates and empty parts."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def topics(name: str, text: str) -> tuple[str, ...]:
    """The topics of a list with commas, at least one."""
    found = listed(text)
    if not found:
        raise OptionError(f"{name}: give one topic, or several separated by commas")
    return tuple(topic(name, each) for each in found)


def topic(name: str, text: str) -> str:
    """One topic."""
    return _checked(name, text, check_topic)


def group(name: str, text: str) -> str:
    """One group."""
    return _checked(name, text, check_group)


def _checked(name: str, text: str, check: Callable[[str], None]) -> str:
    try:
        check(text)
    except MessageError as error:
        raise OptionError(f"{name}: {error}") from error
    return text


def boolean(name: str, text: str) -> bool:
    """Parse `true` or `false`."""
    return one_of(name, text, ("true", "false")) == "true"


def count(name: str, text: str) -> int:
    """A whole number above 0."""
    number = whole_number(text)
    if not number:
        raise OptionError(f"{name}: {text!r} is no whole number above 0")
    return number


def one_of(name: str, text: str, words: Sequence[str]) -> str:
    """One of the words, in lower case."""
    if text.lower() not in words:
        raise OptionError(f"{name}: {text!r} is none of {', '.join(words)}")
    return text.lower()


def tags(name: str, text: str) -> frozenset[str] | None:
    """The tags of a list with `||`; None for an asterisk, which means all messages."""
    if text == "*":
        return None
    found = frozenset(part.strip() for part in text.split("||") if part.strip())
    if not found:
        raise OptionError(f"{name}: give tags separated by ||, or * for every message")
    return found


def mode(name: str, text: str) -> Mode:
    return Mode(one_of(name, text, [each.value for each in Mode]))


def uncompressed_max(name: str, text: str) -> int:
    """The largest size of a decompressed body: bytes above 0, at most 1 GiB."""
    found = count(name, text)
    if found > _BODY_MAX:
        raise OptionError(
            f"{name}: {found} is above {_BODY_MAX}, the largest body of a row; "
            f"the default is {UNCOMPRESSED_MAX}"
        )
    return found


def access(values: Mapping[str, str]) -> Access:
    """The access keys and TLS settings in the options.

    :raises OptionError: a value is invalid, or an option that it needs is missing.
    """
    try:
        return access_of(values)
    except ConfigError as error:
        raise OptionError(str(error)) from None
