"""JSON texts with one large table are read in pieces: what is read is what the whole text says."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.steps import Steps, finished
from roquet.protocol.json import sliced
from roquet.protocol.json.dialect import dump_bytes, dump_dialect, load
from roquet.protocol.json.sliced import WHOLE_SIZE_MAX, load_parts
from tests.protocol.strategies import text

PIECE: Final = 8 * 1024
MANY: Final = {f"T{at}": {"name": f"T{at}", "perm": 6} for at in range(1000)}
"""A table of some pieces."""
odd = st.sampled_from(
    ["", '"},"', "}", '{"', "\\", '},"table":{', ',1:{"', '"table":{', '"table":{}', "ü"]
)


def read(body: bytes, *path: str, dialect_values_max: int | None = None) -> tuple[Any, Any]:
    """The document without the table, and the table, whose parts are put together."""
    document, parts = finished(load_parts(body, path or ("table",), dialect_values_max))
    return document, {key: value for part in parts for key, value in part.items()}


def count_steps(work: Steps[Any]) -> int:
    return sum(1 for _ in work)


documents = st.recursive(
    st.none() | st.integers(0, 9) | text | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text | odd, inner, max_size=3),
    max_leaves=12,
)


@given(
    st.lists(st.tuples(text | odd, documents), max_size=12),
    documents,
    st.booleans(),
    st.integers(1, 60),
)
def test_any_table_is_read_as_it_is_wherever_it_is_cut(
    entries: list[tuple[str, Any]], other: Any, is_first: bool, size: int
) -> None:
    table = dict(entries)
    document = {"table": table, "other": other} if is_first else {"other": other, "table": table}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliced, "_PIECE_SIZE", size)
        rest, parts = finished(load_parts(dump_bytes(document), ("table",)))

    assert {key: value for part in parts for key, value in part.items()} == table
    assert rest["other"] == other


def test_the_document_comes_without_the_entries_which_come_in_order() -> None:
    body = dump_bytes({"before": [1], "table": MANY, "after": {"x": {}}})

    document, parts = finished(load_parts(body, ("table",)))

    assert document == {"before": [1], "table": {}, "after": {"x": {}}}
    assert [name for part in parts for name in part] == [*MANY]
    assert 3 < len(parts) <= len(body) // PIECE + 1
    assert all(parts)


def test_a_table_may_be_inside_of_another_object() -> None:
    body = dump_bytes({"outer": {"table": MANY, "x": 1}, "y": 2})

    assert read(body, "outer", "table") == ({"outer": {"table": {}, "x": 1}, "y": 2}, MANY)


def test_a_short_text_is_read_in_one_step_with_its_table_in_one_part() -> None:
    body = b'{"table":{"a":{"b":1}},"x":2}'

    assert count_steps(load_parts(body, ("table",))) == 1
    assert finished(load_parts(body, ("table",))) == (
        {"table": {"a": {"b": 1}}, "x": 2},
        [{"a": {"b": 1}}],
    )


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"table":{}}',
        b'{"table":null}',
        b'{"other":{"table":{"a":1}}}',
        b'{"table":{},"x":"%b"}' % (b"x" * PIECE),
        b'{"x":"%b"}' % (b"x" * PIECE),
    ],
)
def test_a_text_without_entries_has_no_parts(body: bytes) -> None:
    assert finished(load_parts(body, ("table",))) == (load(body), [])


def test_bare_keys_are_read_in_pieces_too() -> None:
    body = dump_dialect({"table": MANY}).replace(b'"perm"', b"0")

    document, table = read(body)

    assert (document, table["T7"]) == ({"table": {}}, {"name": "T7", "0": 6})
    # each piece has some hundred bare keys, all have a thousand
    assert count_steps(load_parts(body, ("table",), 500)) > len(body) // PIECE


@pytest.mark.parametrize(
    "body",
    [
        dump_bytes({"x": {"table": MANY}, "table": {"a": {}}}),
        dump_bytes({"table": {"a": {}}, "x": {"table": MANY}}),
        dump_bytes({"x": {"table": MANY}}),
        dump_bytes({"table": [{"table": MANY}]}),
    ],
    ids=["before it", "behind it", "without it", "in its place"],
)
def test_a_table_of_that_name_elsewhere_is_not_taken_for_it(body: bytes) -> None:
    whole = load(body)

    document, parts = finished(load_parts(body, ("table",)))

    assert document == whole
    assert parts == ([whole["table"]] if "table" in whole else [])


def test_of_two_tables_of_that_name_the_last_one_is_read_as_in_any_json() -> None:
    body = b'{"table":%b,"table":{"a":{}}}' % dump_bytes(MANY)

    assert read(body)[1] == {"a": {}}


def test_references_are_resolved_in_a_text_that_is_read_at_once() -> None:
    body = dump_bytes({"x": {"y": 1}, "table": {**MANY, "again": {"$ref": "$.x"}}})

    assert read(body)[1] == {**MANY, "again": {"y": 1}}


def test_a_text_of_the_largest_size_that_cannot_be_cut_is_read_and_a_larger_one_is_refused() -> (
    None
):
    body = b'{"table":{"a":"%b"}}'
    longest = body % (b"x" * (WHOLE_SIZE_MAX - len(body) + 2))

    assert len(longest) == WHOLE_SIZE_MAX
    assert len(read(longest)[1]["a"]) == WHOLE_SIZE_MAX - len(body) + 2
    with pytest.raises(
        ValueError, match=f"JSON of {WHOLE_SIZE_MAX + 1} bytes, of which outer.table"
    ):
        read(longest.replace(b"x", b"xx", 1), "outer", "table")


@pytest.mark.parametrize("size", [WHOLE_SIZE_MAX - 22, WHOLE_SIZE_MAX])
def test_beside_its_table_a_text_may_have_as_much_as_is_read_at_once(size: int) -> None:
    body = dump_bytes({"table": MANY, "x": "x" * (size - len(b',"x":""}'))})

    if size == WHOLE_SIZE_MAX:
        with pytest.raises(ValueError, match="is not a table of objects"):
            read(body)
    else:
        assert read(body)[1] == MANY


def test_a_table_may_be_larger_than_what_is_read_at_once() -> None:
    table = {f"T{at}": {"name": "x" * 100} for at in range(11_000)}
    body = dump_bytes({"table": table})

    assert len(body) > WHOLE_SIZE_MAX
    assert read(body) == ({"table": {}}, table)
    assert count_steps(load_parts(body, ("table",))) > len(body) // (PIECE + 200)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", r"\w"),
        (b"[]", "JSON object expected, found list"),
        (b"7", "JSON object expected, found int"),
        (dump_bytes([{"table": MANY}]), "JSON object expected, found list"),
        (dump_bytes({"table": MANY})[:-1], "JSON: wanted"),
        (dump_bytes({"table": MANY})[:-2], "JSON: wanted"),
        (dump_bytes({"table": MANY}) + b"}", "JSON: wanted the end"),
        (dump_bytes({"table": MANY}).replace(b"T300", b'T"300'), "JSON: wanted"),
    ],
)
def test_another_text_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(body)


def test_a_text_that_is_read_at_once_may_have_few_values_in_the_dialect() -> None:
    body = b"{'table':{'a':{'b':1}}}"

    assert read(body, dialect_values_max=7)[1] == {"a": {"b": 1}}
    with pytest.raises(ValueError, match="not standard JSON, and more than"):
        read(body, dialect_values_max=6)


def test_a_string_of_escaped_quotes_without_an_end_is_read_once() -> None:
    """Once each quote was tried as the begin of a string: a megabyte of them took half an hour."""
    body = b'{"table":{"' + b'\\"' * 400_000

    with pytest.raises(ValueError, match=r"\w"):
        read(body, dialect_values_max=1000)


@pytest.mark.parametrize("entry", [b"{", b'"",', b'"a":{},'], ids=["open", "texts", "closed"])
def test_the_end_of_a_table_is_sought_in_short_steps(entry: bytes) -> None:
    body = b'{"table":{"a":' + entry * 20_000 + b"?"
    work = load_parts(body, ("table",), 1000)

    for _ in range(20_000 // 512):
        next(work)

    with pytest.raises(ValueError, match=r"\w"):
        finished(work)


def test_each_cut_that_leaves_no_json_is_a_step() -> None:
    """An entry of more than a piece whose last members look like the ends of entries."""
    entry = {"x": [1] * PIECE, "y": {str(at): {} for at in range(30)}}
    body = dump_bytes({"table": {"a": entry, "b": {}}})

    assert read(body) == ({"table": {}}, {"a": entry, "b": {}})
    assert count_steps(load_parts(body, ("table",))) >= 8


def test_what_is_read_at_once_has_few_bare_keys() -> None:
    """A megabyte of bare keys took 0.2 s in one step."""
    numbers = b"{" + b",".join(b"%d:0" % at for at in range(5000)) + b"}"
    large = dump_bytes({"table": MANY})[:-1]
    for body in (
        b'{"table":{"a":%b}}' % numbers,
        b'{"table":{"a":{"b":%b},"c":{}}}' % numbers,
        large + b',"x":%b}' % numbers,
        large[:-1] + b',"a":%b}}' % numbers,
    ):
        assert read(body, dialect_values_max=5000) == read(body)
        with pytest.raises(ValueError, match="not standard JSON, and more than"):
            read(body, dialect_values_max=4999)
