"""A body is read and written as its fields declare it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import pytest

from roquet.common.java import Int32, Int64
from roquet.protocol.bodies.body import Body, JsonMember, Table, WriteOnly
from roquet.protocol.json.dialect import dump_dialect
from roquet.protocol.json.numbers import NumberError


@dataclass(frozen=True, slots=True)
class Part(Body):
    number: Int32
    old: Annotated[Int64, JsonMember("newName", other_name="oldName")] = 0


def _words(json: str | None) -> tuple[str, ...]:
    return tuple((json or "").split())


@dataclass(frozen=True, slots=True)
class Whole(Body):
    WRITE_ONLY: ClassVar[WriteOnly] = {"count": lambda self: len(self.parts)}

    name: Annotated[str, JsonMember("wholeName")]
    title: str = "none"
    is_fine: Annotated[bool, JsonMember("fine")] = True
    parts: tuple[Part, ...] = ()
    first: Part | None = None
    second: Annotated[Part | None, JsonMember("second", is_optional=True)] = None
    tags: Annotated[tuple[str, ...], JsonMember("tags", read=_words, write=" ".join)] = ()
    z_own: Annotated[Int32, JsonMember("zOwn", is_roquet_only=True)] = 5
    a_own: Annotated[str, JsonMember("aOwn", is_roquet_only=True)] = ""


@dataclass(frozen=True, slots=True)
class Parts(Table):
    parts: Mapping[str, Part] = field(default_factory=dict)
    numbers: Mapping[str, Mapping[Int32, Int64]] = field(default_factory=dict)
    title: str = ""


WHOLE = (
    '{"count":1,"fine":false,"first":null,"parts":[{"newName":2,"number":1}],"tags":"a b",'
    '"title":"t","wholeName":"w","zOwn":5,"aOwn":"x"}'
)


def test_members_stand_in_the_order_of_their_names_and_our_own_behind_them() -> None:
    whole = Whole("w", "t", is_fine=False, parts=(Part(1, 2),), tags=("a", "b"), a_own="x")

    assert dump_dialect(whole.to_json()).decode() == WHOLE


def test_what_was_written_is_read() -> None:
    whole = Whole("w", "t", False, (Part(1, 2),), Part(3), Part(4, 5), ("a",), 7, "own")

    assert Whole.from_json(whole.to_json() | {"unknown": 1}) == whole


@pytest.mark.parametrize("empty", [None, "", 0, [], {}])
def test_a_member_that_is_null_or_empty_is_as_good_as_missing(empty: object) -> None:
    missing = Whole.from_json({"wholeName": "w"})

    assert missing == Whole("w")
    names = ("title", "parts", "first", "second", "tags", "aOwn")
    assert Whole.from_json({"wholeName": "w", **dict.fromkeys(names, empty)}) == missing


def test_any_value_is_read_as_a_bool_where_a_bool_is_wanted() -> None:
    assert not Whole.from_json({"wholeName": "w", "fine": None}).is_fine
    assert Whole.from_json({"wholeName": "w", "fine": "false"}).is_fine


def test_another_spelling_counts_where_the_usual_one_is_missing() -> None:
    assert Part.from_json({"number": 1, "oldName": 7}) == Part(1, 7)
    assert Part.from_json({"number": 1, "oldName": 7, "newName": 8}) == Part(1, 8)


@pytest.mark.parametrize(
    ("json", "error", "told"),
    [
        ({}, KeyError, "wholeName"),
        ({"wholeName": None}, KeyError, "wholeName"),
        ({"wholeName": "w", "parts": [{}]}, KeyError, "number"),
        ({"wholeName": "w", "parts": [{"number": None}]}, NumberError, "^number: NoneType"),
        ({"wholeName": "w", "zOwn": 1 << 31}, NumberError, "^zOwn: 2147483648"),
        ({"wholeName": "w", "first": {"number": 1, "newName": 1 << 63}}, NumberError, "^newName"),
        ({"wholeName": "w", "first": [1]}, TypeError, r"\w"),
        ({"wholeName": "w", "parts": 5}, TypeError, r"\w"),
    ],
)
def test_what_does_not_fit_is_refused(json: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Whole.from_json(json)


def test_a_table_leaves_out_and_counts_what_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts.from_json(
        {
            "parts": {"fine": {"number": 1}, "odd": {"number": "x"}},
            "numbers": {"1": {"2": 3, "x": 4}, "5": None},
            "title": "t",
        }
    )

    assert (parts.parts, parts.numbers) == ({"fine": Part(1)}, {"1": {2: 3}, "5": {}})
    assert (parts.title, parts.left_out) == ("t", 2)
    assert "count=2 first=number: 'x' is no number" in caplog.text
    assert parts == Parts(parts.parts, parts.numbers, "t"), "what was left out does not count"


def test_an_empty_mandatory_text_is_read_as_it_is() -> None:
    assert Whole.from_json({"wholeName": ""}) == Whole("")


def test_numbers_are_bare_keys() -> None:
    parts = Parts({"p": Part(1)}, {"7": {1: 2}})

    assert dump_dialect(parts.to_json()) == (
        b'{"numbers":{"7":{1:2}},"parts":{"p":{"newName":0,"number":1}},"title":""}'
    )
    assert Parts.first_table_field().member_name == "parts"
    assert parts.with_entries({}, left_out=3) == Parts({}, parts.numbers)


@dataclass(frozen=True, slots=True)
class Doubled(Body):
    number: Int32 = 0

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Doubled:
        return cls(2 * json["number"])


@dataclass(frozen=True, slots=True)
class Outer(Body):
    inner: Doubled = Doubled()


def test_a_body_in_another_is_read_as_its_class_reads_it() -> None:
    assert Outer.from_json({"inner": {"number": 4}}) == Outer(Doubled(8))


@dataclass(frozen=True, slots=True)
class Odd(Body):
    number: int = 0


@dataclass(frozen=True, slots=True)
class NoTable(Body):
    numbers: Mapping[str, Int32] = field(default_factory=dict)


@pytest.mark.parametrize("kind", [Odd, NoTable])
def test_a_field_of_an_unknown_type_is_an_error(kind: type[Body]) -> None:
    with pytest.raises(TypeError, match="nothing reads a member of type"):
        kind().to_json()
