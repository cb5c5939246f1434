"""Configuration: frozen dataclasses that are read from and shown as pairs of text.

A setting is a field with a default. In a file it has the field's name in camel case, or the name
given to `setting`. Its type is int, float, bool, str or an Enum (by its values), each also with
`| None`. A field that is itself such a dataclass is read from the same pairs, so that one file
configures several components.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_type_hints

from roquet.common.java import camel_case
from roquet.common.properties import Properties, parse
from roquet.errors import ConfigError

T = TypeVar("T")

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_ALIKE: Final = 0.85
"""Similarity (0 to 1) from which a name may be a misspelling. Apache has settings with 0.75."""
_PROPOSALS_MAX: Final = 16
"""Unknown names compared with all settings, 1 ms each; a client may send any number of them."""
_COMPARED_SIZE_MAX: Final = 64
"""Characters of a name up to which it is compared."""
_BOOLEANS: Final = {"true": True, "false": False}


def setting(
    default: T,
    name: str | None = None,
    *,
    aliases: tuple[str, ...] = (),
    at_least: float | None = None,
    at_most: float | None = None,
) -> T:
    """Declare a field of a configuration.

    :param name: its name in files; None: the field's name in camel case.
    :param aliases: older names, accepted with a warning.
    :param at_least: the lowest value of a number, inclusive.
    :param at_most: the highest value of a number, inclusive.
    """
    rules = {"name": name, "aliases": aliases, "at_least": at_least, "at_most": at_most}
    return dataclasses.field(default=default, metadata=rules)


def read_file(path: Path) -> Properties:
    """Read the pairs of a configuration file.

    :raises ConfigError: the file cannot be read, or is no properties file.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"configuration file {path} is no properties file: byte {error.start} is no UTF-8"
        ) from error
    except ValueError as error:
        raise ConfigError(f"configuration file {path}: {error}") from error


def read_settings(
    cls: type[T], pairs: Iterable[tuple[str, str]], source: str = ""
) -> tuple[T, list[str]]:
    """Make a configuration from pairs; other settings have their defaults.

    :param source: the origin of the pairs, for messages.
    :returns: the configuration, and warnings about pairs without effect.
    :raises ConfigError: a setting does not allow its value.
    """
    return update_settings(cls(), pairs, source)


def update_settings(
    settings: T, pairs: Iterable[tuple[str, str]], source: str = ""
) -> tuple[T, list[str]]:
    """A copy of `settings` with the values of the pairs; otherwise like `read_settings`."""
    given, warnings = _by_official_name(
        dict(pairs), type(settings), f"{source}: " if source else ""
    )
    return _changed(settings, given, source), warnings


def show_settings(settings: object) -> list[tuple[str, str]]:
    """Name and value of every setting as text; None is shown as an empty value."""
    return list({rule.name: _to_text(value) for rule, value in _rules_and_values(settings)}.items())


def setting_names(cls: type[Any]) -> frozenset[str]:
    """The names of all settings of a configuration, without older names."""
    return frozenset(rule.name for rule in _all_rules(cls))


@dataclass(frozen=True, slots=True)
class _Rule:
    """Name, type and bounds of one setting."""

    field: str
    name: str
    aliases: tuple[str, ...]
    kind: type[Any]
    may_be_none: bool
    at_least: float | None
    at_most: float | None

    def read(self, text: str, source: str) -> Any:
        """Convert a value. Trailing blanks are dropped, except from free text."""
        if self.may_be_none and not text.strip():
            return None
        try:
            return self._converted(text)
        except (ValueError, KeyError):
            where = f" in {source}" if source else ""
            raise ConfigError(f"{self.name}={text}{where}: allowed is {self._allowed()}") from None

    def _converted(self, text: str) -> Any:
        if self.kind is str:
            return text
        text = text.rstrip()
        if self.kind is bool:
            return _BOOLEANS[text.lower()]
        if issubclass(self.kind, Enum):
            return {str(member.value): member for member in self.kind}[text]
        pattern: re.Pattern[str] = _WHOLE_NUMBER if self.kind is int else _NUMBER
        if pattern.fullmatch(text) is None or not self._in_range(value := self.kind(text)):
            raise ValueError
        return value

    def _in_range(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def _allowed(self) -> str:
        if self.kind is bool:
            return "true or false"
        if issubclass(self.kind, Enum):
            return "one of " + ", ".join(str(member.value) for member in self.kind)
        text = "a whole number in decimal digits" if self.kind is int else "a decimal number"
        bounds = (("from", self.at_least), ("up to", self.at_most))
        return " ".join([text, *(f"{word} {bound}" for word, bound in bounds if bound is not None)])


def _changed(settings: T, given: dict[str, str], source: str) -> T:
    rules, parts = _plan(type(settings))
    changes: dict[str, Any] = {
        rule.field: rule.read(given[rule.name], source) for rule in rules if rule.name in given
    }
    changes |= {part: _changed(getattr(settings, part), given, source) for part in parts}
    return dataclasses.replace(settings, **changes)  # type: ignore[type-var]  # T is one


def _by_official_name(
    given: dict[str, str], cls: type[Any], prefix: str
) -> tuple[dict[str, str], list[str]]:
    """The pairs with older names replaced, and warnings. A present name wins over its older one."""
    official = {alias: rule.name for rule in _all_rules(cls) for alias in rule.aliases}
    names = setting_names(cls)
    result: dict[str, str] = {}
    warnings: list[str] = []
    unknown = 0
    for name, value in given.items():
        if name in names:
            result[name] = value
        elif name in official:
            warnings.append(f"{prefix}{name} is an older spelling of {official[name]}")
            result.setdefault(official[name], given.get(official[name], value))
        else:
            unknown += 1
            proposal = _proposal(name, names) if unknown <= _PROPOSALS_MAX else ""
            warnings.append(f"{prefix}{name} is no setting known here, it has no effect{proposal}")
    return result, warnings


def _proposal(name: str, names: Iterable[str]) -> str:
    """The end of a warning with the setting of a similar name; empty if there is none."""
    if len(name) > _COMPARED_SIZE_MAX:
        return ""
    from difflib import get_close_matches  # clients load this module, and never come here

    alike = get_close_matches(name, sorted(names), 1, _ALIKE)
    return f"; did you mean {alike[0]}?" if alike else ""


def _rules_and_values(settings: object) -> Iterator[tuple[_Rule, Any]]:
    rules, parts = _plan(type(settings))
    for rule in rules:
        yield rule, getattr(settings, rule.field)
    for part in parts:
        yield from _rules_and_values(getattr(settings, part))


def _all_rules(cls: type[Any]) -> Iterator[_Rule]:
    rules, parts = _plan(cls)
    yield from rules
    for part in parts.values():
        yield from _all_rules(part)


def _plan(cls: type[Any]) -> tuple[list[_Rule], dict[str, type[Any]]]:
    """The rules of a configuration's own settings, and its fields that are configurations."""
    types = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    parts = {
        field.name: types[field.name]
        for field in fields
        if dataclasses.is_dataclass(types[field.name])
    }
    return [_rule(field, types[field.name]) for field in fields if field.name not in parts], parts


def _rule(field: dataclasses.Field[Any], kind: Any) -> _Rule:
    members = get_args(kind) or (kind,)
    bases = [
        getattr(member, "__supertype__", member) for member in members if member is not type(None)
    ]
    assert bases[0] in (int, float, bool, str) or issubclass(bases[0], Enum), (
        f"{field.name}: no rule for {kind}"
    )
    rules = field.metadata
    return _Rule(
        field.name,
        rules.get("name") or camel_case(field.name),
        rules.get("aliases", ()),
        bases[0],
        len(bases) < len(members),
        rules.get("at_least"),
        rules.get("at_most"),
    )


_TEXT_OF: Final[dict[type[Any], Callable[[Any], str]]] = {
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "",
}


def _to_text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return _TEXT_OF.get(type(value), str)(value)
