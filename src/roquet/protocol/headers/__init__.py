"""Typed header fields, a module per conversation.

A header is a frozen dataclass; its fields go over the wire in camel case, as Apache spells them. A field without a
default is one that Java marks as mandatory: reading a request without it refuses the request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, get_type_hints

from roquet.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import to_text


class Header:
    """What all headers share: `read` from and `write` to the text fields of a command.

    `SPELLING` names the fields whose wire name is not their camel case form.
    """

    SPELLING: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> Self:
        """:raises Refused: a mandatory field is missing or one has the wrong type."""
        values: dict[str, Any] = {}
        for name, wire_name, convert, mandatory in _plan_of(cls):
            text = fields.get(wire_name)
            if text is None or (text == "" and convert is not str):
                if mandatory:
                    raise Refused(ResponseCode.SYSTEM_ERROR, f"header field {wire_name} is missing")
                continue
            try:
                values[name] = convert(text)
            except ValueError:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"header field {wire_name}: {text[:40]!r} is not {convert.__name__}"
                ) from None
        return cls(**values)

    def write(self) -> dict[str, str]:
        """The fields as text; those that are None are left out."""
        values = ((wire_name, getattr(self, name)) for name, wire_name, _, _ in _plan_of(type(self)))
        return {wire_name: to_text(value) for wire_name, value in values if value is not None}


def boolean(text: str) -> bool:
    """Java's Boolean.parseBoolean: true in any case, all else false."""
    return text.lower() == "true"


_CONVERTERS: dict[Any, Callable[[str], Any]] = {str: str, int: int, bool: boolean, float: float}


_Plan = tuple[tuple[str, str, Callable[[str], Any], bool], ...]
"""(attribute, wire name, converter, mandatory) of each field of a header class."""
_PLANS: dict[type[Header], _Plan] = {}


def _plan_of(header: type[Header]) -> _Plan:
    plan = _PLANS.get(header)
    if plan is None:
        plan = _PLANS[header] = _plan(header)
    return plan


def _plan(header: type[Header]) -> _Plan:
    types = get_type_hints(header)
    return tuple(
        (
            item.name,
            header.SPELLING.get(item.name, _camel_case(item.name)),
            next(_CONVERTERS[part] for part in _parts(types[item.name]) if part in _CONVERTERS),
            item.default is dataclasses.MISSING,
        )
        for item in dataclasses.fields(header)  # type: ignore[arg-type]
    )


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, a NewType's base, or the type itself."""
    members = getattr(annotation, "__args__", None) or (annotation,)
    return tuple(getattr(member, "__supertype__", member) for member in members)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
