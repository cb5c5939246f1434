"""Typed request and response headers, a module per subject.

A header is a frozen dataclass. On the wire its field names are in camel case, as in Apache. A field
without a default is mandatory in Apache, too: a request without it is refused.

May import of `protocol`: records, remoting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from roquet.common.java import (
    INT_MAX,
    LONG_MAX,
    Int32,
    Int64,
    camel_case,
    read_boolean,
    read_int,
    read_long,
)
from roquet.errors import MessageError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import to_text


class Header:
    """Base class of headers: `read` from and `write` to the extended fields of a command.

    `SPELLING` has the wire names that are not the camel case form of the field's name.
    """

    SPELLING: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> Self:
        """Decode the fields.

        Apache's broker ignores an optional field that it cannot read. Here it is refused:
        otherwise a message would be stored with other values than the client sent.

        :raises Refused: a mandatory field is missing, or a number is out of Java's range.
        """
        values: dict[str, Any] = {}
        for name, wire_name, convert, mandatory in _plan_of(cls):
            text = fields.get(wire_name)
            if text is None or (text == "" and convert is not str):
                if mandatory:
                    raise Refused(
                        ResponseCode.SYSTEM_ERROR,
                        f"header field {_shown(name, wire_name)} is missing",
                    )
                continue
            try:
                values[name] = convert(text)
            except ValueError:
                remark = (
                    f"header field {_shown(name, wire_name)}: "
                    f"{text[:40]!a} is no number up to {_MOST[convert]}"
                )
                raise Refused(ResponseCode.SYSTEM_ERROR, remark) from None
        return cls(**values)

    def write(self) -> dict[str, str]:
        """Encode the fields as text; fields that are None are left out.

        :raises MessageError: a number is out of Java's range; the peer could not read it.
        """
        fields: dict[str, str] = {}
        for name, wire_name, convert, _ in _plan_of(type(self)):
            value = getattr(self, name)
            if value is not None:
                most = _MOST.get(convert)
                if most is not None and not -most - 1 <= value <= most:
                    raise MessageError(f"{name} is {value}: allowed are {-most - 1} to {most}")
                fields[wire_name] = to_text(value)
        return fields


_CONVERTERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    bool: read_boolean,
    Int32: read_int,
    Int64: read_long,
}
"""Type of a field -> its parser. A bare `int` has none: Java's size must be given."""
_MOST: dict[Any, int] = {read_int: INT_MAX, read_long: LONG_MAX}


_Plan = tuple[tuple[str, str, Callable[[str], Any], bool], ...]
"""(attribute, wire name, converter, mandatory) of each field of a header class."""
_PLANS: dict[type[Header], _Plan] = {}


def _plan_of(header: type[Header]) -> _Plan:
    plan = _PLANS.get(header)
    if plan is None:
        plan = _PLANS[header] = _plan(header)
    return plan


def _plan(header: type[Header]) -> _Plan:
    types = get_type_hints(header, include_extras=True)
    return tuple(
        (
            item.name,
            header.SPELLING.get(item.name, camel_case(item.name)),
            _converter(header, item.name, types[item.name]),
            item.default is dataclasses.MISSING,
        )
        for item in dataclasses.fields(header)  # type: ignore[arg-type]  # each header is one
    )


def _converter(header: type[Header], name: str, annotation: Any) -> Callable[[str], Any]:
    """The parser of a field of that type, or of that type `| None`."""
    is_union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    for part in get_args(annotation) if is_union else (annotation,):
        if part in _CONVERTERS:
            return _CONVERTERS[part]
    raise TypeError(f"{header.__name__}.{name}: nothing reads a header field of type {annotation}")


def _shown(name: str, wire_name: str) -> str:
    """A field's name for errors: sends have one-letter names on the wire."""
    full = camel_case(name)
    return wire_name if full.lower() == wire_name.lower() else f"{full} ({wire_name})"
