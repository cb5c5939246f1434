"""Declares JSON bodies: frozen dataclasses whose fields say which members of the object they are.

    @dataclass(frozen=True, slots=True)
    class TopicConfig(Body):
        name: Annotated[str, JsonMember("topicName")]
        read_queues: Annotated[Int32, JsonMember("readQueueNums")] = 16
        filter_servers: tuple[str, ...] = ()

A field without `JsonMember` has its own name in camel case. Members are written in the order of
their names, as fastjson does. Unknown members are ignored. If a member is missing, the field has
its default; if it has none, the body is refused. A member is read by the type of its field:

    bool                any value, as bool() of it
    Int32, Int64        a number of that range, or its text (`json.numbers`)
    str                 any value but null, as text
    a `Body`            an object
    tuple[T, ...]       an array of T
    T | None            a T
    Mapping[K, V]       an object, in a `Table` only

From `str` on, null is as good as missing, unless the type is `T | None`. So is an empty member, if
the field has a default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    Self,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

from roquet.common.java import Int32, Int64, camel_case
from roquet.protocol.json.dialect import IntKeys
from roquet.protocol.json.numbers import NumberError, as_int32, as_int64, json_int, json_long

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A field's JSON member, where the field's name and type do not determine it."""

    name: str
    other_name: str = ""
    """A second name, for numbers only. It is read if there is no member of the first name."""
    is_roquet_only: bool = False
    """Apache has no such member. Those are written last, in the order of the fields."""
    is_optional: bool = False
    """It is left out while it has the default."""
    read: Callable[[Any], Any] | None = None
    """Returns the field's value. It is called with the member, with None if there is none."""
    write: Callable[[Any], object] | None = None
    """Returns the member for the field's value."""


WriteOnly = Mapping[str, Callable[[Any], object]]
"""Members derived from the fields: they are written, and ignored when they are read."""


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object: the body of a request or response, a part of one, or a state file."""

    WRITE_ONLY: ClassVar[WriteOnly] = {}

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Self:
        """Make the body of a decoded document. `parse` turns the errors into one.

        :raises KeyError: a mandatory member is missing, or a mandatory text is null.
        :raises NumberError: a number is none, or is out of Java's range.
        :raises TypeError: a member is of a wrong type.
        :raises AttributeError: the same.
        """
        body: Self = _plan_of(cls).read(json)
        return body

    @final
    def to_json(self) -> dict[str, Any]:
        """Make the document, for `dump_bytes`, or for `dump_dialect` if it has integer keys."""
        return _plan_of(type(self)).write(self)


@dataclass(frozen=True, slots=True)
class Table(Body):
    """A body with tables, whose entries with numbers out of range are left out.

    One invalid topic or group, in an old state file or in a registration, must not make the others
    unusable.
    """

    left_out: int = field(default=0, compare=False, kw_only=True)
    """Number of entries that `from_json` left out. It logs them."""

    @classmethod
    def first_table_field(cls) -> TableField:
        return _plan_of(cls).tables[0]

    def with_entries(self, table: Mapping[Any, Any], left_out: int = 0) -> Self:
        """The same body with another first table."""
        changes: dict[str, Any] = {self.first_table_field().field_name: table, "left_out": left_out}
        return replace(self, **changes)


def log_left_out(left_out: list[str]) -> int:
    """Count the entries that were left out, and log them.

    One line is for all of them: a peer may send tens of thousands.
    """
    if left_out:
        log.warning("table entries left out: count=%d first=%s", len(left_out), left_out[0])
    return len(left_out)


_Items = Iterable[tuple[Any, Any]]


class TableField(NamedTuple):
    """A Mapping field of a `Table`."""

    field_name: str
    member_name: str
    read: Callable[[Mapping[str, Any] | None, list[str]], dict[Any, Any]]
    """Reads the member, or a part of it; appends an error for each entry that it leaves out."""
    write: Callable[[_Items], Any]
    """Returns the member for the items of the table, or for some of them."""


class _Plan(NamedTuple):
    """How bodies of one class are read and written."""

    read: Callable[[Mapping[str, Any]], Any]
    write: Callable[[Any], dict[str, Any]]
    tables: Sequence[TableField]


_PLANS: Final[dict[type[Body], _Plan]] = {}


def _plan_of(kind: type[Body]) -> _Plan:
    plan = _PLANS.get(kind)
    if plan is None:
        plan = _PLANS[kind] = _Compiler(kind).plan()
    return plan


class _Compiler:
    """Generates the code that one would write by hand: a constructor call and a dict literal.

    Loops over the fields take 1.3 times as long to read, and 3 times as long to write. A broker has
    tables of 10,000 topics. All names in the source are those of fields and members of our classes.
    """

    def __init__(self, kind: type[Body]) -> None:
        self._kind = kind
        self._scope: dict[str, Any] = {
            "kind": kind,
            "log_left_out": log_left_out,
            "refuse_missing": _refuse_missing,
        }
        self._tables: list[TableField] = []
        self._values: list[str] = []
        """For each field, the Python expression that reads it from `json` and `left_out`."""
        self._members: list[tuple[int, str, str]] = []
        """Rank, name and source of each item of the dict literal, which reads `self`."""
        types = get_type_hints(kind, include_extras=True)
        for at, item in enumerate(item for item in fields(kind) if not item.kw_only):
            self._add(at, item, *_split(types[item.name], item.name))
        for name, compute in kind.WRITE_ONLY.items():
            self._scope[f"compute_{name}"] = compute
            self._members.append((-1, name, f"{name!r}: compute_{name}(self)"))

    def plan(self) -> _Plan:
        values = ", ".join(self._values)
        members = ", ".join(source for _, _, source in sorted(self._members))
        write = self._evaluated(f"lambda self: {{{members}}}")
        if not issubclass(self._kind, Table):
            return _Plan(self._evaluated(f"lambda json: kind({values})"), write, ())
        made = f"kind({values}, left_out=log_left_out(left_out))"
        self._scope["read"] = self._evaluated(f"lambda json, left_out: {made}")
        return _Plan(self._evaluated("lambda json: read(json, [])"), write, self._tables)

    def _evaluated(self, source: str) -> Callable[..., Any]:
        function: Callable[..., Any] = eval(source, self._scope)
        return function

    def _add(self, at: int, item: Field[Any], value_type: Any, member: JsonMember) -> None:
        write: Callable[[Any], object] | None
        value = f"self.{item.name}"
        written = value
        if get_origin(value_type) is Mapping and issubclass(self._kind, Table):
            table = TableField(item.name, member.name, *_table(value_type))
            write = table.write
            written = f"{value}.items()"
            self._tables.append(table)
            self._scope[f"read_{at}"] = table.read
            self._values.append(f"read_{at}(json.get({member.name!r}), left_out)")
        else:
            write = member.write or _codec(value_type).write
            self._values.append(self._value(at, item, value_type, member))
        source = f"{member.name!r}: {written if write is None else f'write_{at}({written})'}"
        if member.is_optional:
            source = f"**({{{source}}} if {value} != default_{at} else {{}})"
        self._scope |= {f"write_{at}": write, f"default_{at}": item.default}
        self._members.append((at if member.is_roquet_only else -1, member.name, source))

    def _value(self, at: int, item: Field[Any], value_type: Any, member: JsonMember) -> str:
        is_mandatory = item.default is MISSING
        if member.read is not None:
            self._scope[f"read_{at}"] = member.read
            return f"read_{at}(json.get({member.name!r}))"
        if value_type in _NUMBERS:
            self._scope[f"read_{at}"] = _NUMBERS[value_type]
            name = f"{member.name!r}"
            if member.other_name:
                name = f"{name} if {name} in json else {member.other_name!r}"
            return f"read_{at}(json, {name}, {None if is_mandatory else item.default})"
        self._scope[f"read_{at}"] = _codec(value_type).read
        if is_mandatory and value_type is str:
            found = f"(found := json[{member.name!r}])"
            return f"(str(found) if {found} is not None else refuse_missing({member.name!r}))"
        if is_mandatory:
            return f"read_{at}(json[{member.name!r}])"
        if value_type is bool:
            return f"read_{at}(json.get({member.name!r}, {item.default}))"
        return f"(read_{at}(found) if (found := json.get({member.name!r})) else default_{at})"


def _refuse_missing(name: str) -> NoReturn:
    """Refuse a mandatory text that is null: for Java, that and a missing member are the same."""
    raise KeyError(name)


def _split(annotation: Any, field_name: str) -> tuple[Any, JsonMember]:
    """The type of a field, and its member."""
    if get_origin(annotation) is Annotated and isinstance(annotation.__metadata__[-1], JsonMember):
        *others, member = annotation.__metadata__
        plain = annotation.__origin__
        return (Annotated[(plain, *others)] if others else plain), member
    return annotation, JsonMember(camel_case(field_name))


class _Codec(NamedTuple):
    """How values of one type are read and written. `write` is None if they stay as they are."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None


_SCALARS: Final[Mapping[Any, _Codec]] = {
    str: _Codec(str),
    bool: _Codec(bool),
    Int32: _Codec(as_int32),
    Int64: _Codec(as_int64),
}
_NUMBERS: Final[Mapping[Any, Callable[..., int]]] = {Int32: json_int, Int64: json_long}


def _codec(value_type: Any) -> _Codec:
    if value_type in _SCALARS:
        return _SCALARS[value_type]
    if isinstance(value_type, type) and issubclass(value_type, Body):
        plan = _plan_of(value_type)
        has_its_own = "from_json" in vars(value_type)
        return _Codec(value_type.from_json if has_its_own else plan.read, plan.write)
    arguments = get_args(value_type)
    if get_origin(value_type) is tuple:
        return _tuple(_codec(arguments[0]))
    if NoneType in arguments:
        read, write = _codec(arguments[0])
        return _Codec(read, write and (lambda value: None if value is None else write(value)))
    raise TypeError(f"nothing reads a member of type {value_type}")


def _tuple(item: _Codec) -> _Codec:
    read, write = item
    return _Codec(
        lambda json: tuple(map(read, json)),
        list if write is None else lambda values: list(map(write, values)),
    )


_ReadTable = Callable[[Mapping[str, Any] | None, list[str]], dict[Any, Any]]


def _table(table_type: Any) -> tuple[_ReadTable, Callable[[_Items], Any]]:
    """How a table is read and written, or a table of tables; see `TableField`."""
    key_type, value_type = get_args(table_type)
    if get_origin(value_type) is Mapping:
        read_inner, write_inner = _table(value_type)
        return (
            lambda json, left_out: {
                name: read_inner(inner, left_out) for name, inner in (json or {}).items()
            },
            lambda items: {name: write_inner(inner.items()) for name, inner in items},
        )
    read_key = _codec(key_type).read
    read_value, write = _codec(value_type)

    def read_entries(json: Mapping[str, Any] | None, left_out: list[str]) -> dict[Any, Any]:
        found = {}
        for name, value in (json or {}).items():
            try:
                found[read_key(name)] = read_value(value)
            except NumberError as error:
                left_out.append(f"{error} name={name[:80]!r}")
        return found

    if write is None:
        return read_entries, dict if key_type is str else IntKeys
    return read_entries, lambda items: {key: write(value) for key, value in items}
