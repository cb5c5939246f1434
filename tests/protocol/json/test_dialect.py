"""The JSON of the Java side: what it writes is read, what we write it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.json.dialect import (
    IntKeys,
    ObjectKeys,
    dump_ascii,
    dump_bytes,
    dump_dialect,
    dump_indented,
    load,
    load_quick,
)
from tests.protocol.strategies import int64, text

QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'

documents = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(text.filter(lambda key: key != "$ref"), inner, max_size=4)
    ),
    max_leaves=20,
)
object_keys = st.dictionaries(text, int64 | text, max_size=3).map(
    lambda key: json.dumps(key, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
)


@given(documents)
def test_standard_json_is_read_as_it_is(document: Any) -> None:
    assert load(json.dumps(document)) == document
    assert load(json.dumps(document, ensure_ascii=False, indent=1).encode()) == document


@given(documents)
def test_every_writer_writes_what_any_json_reader_reads(document: Any) -> None:
    for dump in (dump_bytes, dump_ascii, dump_dialect, dump_indented):
        assert json.loads(dump(document)) == document


@given(documents)
def test_what_goes_over_the_wire_has_no_blanks(document: Any) -> None:
    assert dump_ascii(document) == json.dumps(document, separators=(",", ":")).encode()
    assert (
        dump_dialect(document)
        == json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    )


@given(st.dictionaries(int64, documents, max_size=4))
def test_bare_integer_keys_come_back_as_their_digits(table: dict[int, Any]) -> None:
    expected = {str(key): value for key, value in table.items()}

    assert load(dump_dialect(IntKeys(table))) == expected
    assert load(dump_indented(IntKeys(table))) == expected


@given(st.dictionaries(object_keys, documents, max_size=4))
def test_object_keys_come_back_as_sorted_json(table: dict[str, Any]) -> None:
    assert load(dump_dialect(ObjectKeys(table))) == table


def test_tables_with_bare_keys_are_written_as_fastjson_writes_them() -> None:
    assert dump_dialect({"a": IntKeys({0: "x", 1: []})}) == b'{"a":{0:"x",1:[]}}'
    assert dump_dialect(ObjectKeys({QUEUE: 5})) == f"{{{QUEUE}:5}}".encode()


def test_a_config_file_has_a_member_per_line_and_its_numbered_ones_in_a_row() -> None:
    assert dump_indented({"offsetTable": {"T@G": IntKeys({0: 5, 1: 6}), "U@G": {}}}) == (
        b'{\n\t"offsetTable":{\n\t\t"T@G":{0:5,1:6\n\t\t},\n\t\t"U@G":{}\n\t}\n}'
    )


def test_a_file_with_objects_as_keys_has_each_member_of_a_key_on_its_line() -> None:
    """As the 4.9.7 client writes the offsets of a broadcast."""
    key = '{"brokerName":"b","queueId":0,"topic":"T"}'
    text = dump_indented({"offsetTable": ObjectKeys({key: 6})})
    assert (
        text
        == b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:6\n\t}\n}'
    )
    assert load(text) == {"offsetTable": {key: 6}}
    assert dump_indented(ObjectKeys()) == dump_indented(IntKeys()) == b"{}"


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        (f"{{{QUEUE}:5}}", {QUEUE: 5}),
        ('{{"topic":"T","queueId":0,"brokerName":"b"}:{0:1}}', {QUEUE: {"0": 1}}),
        (
            "{'a':'it\\'s','b':'say \"x\" \\u4E2D','c':'\\\\'}",
            {"a": "it's", "b": 'say "x" 中', "c": "\\"},
        ),
        ("{'a':'a \\\" b'}", {"a": 'a " b'}),
        (" { 0 : [ 1 , 2.5 , -3e2 ] , 1 : null }\n", {"0": [1, 2.5, -300.0], "1": None}),
        ("{0:true,1:false}", {"0": True, "1": False}),
        ("{0:{},1:[]}", {"0": {}, "1": []}),
        ('{0:"\\ud83d\\ude00"}', {"0": "😀"}),
    ],
)
def test_the_dialect_is_read(text: str, document: Any) -> None:
    assert load(text) == document
    assert load(text.encode()) == document


def test_an_object_key_can_be_loaded_again() -> None:
    (key,) = load('{{"topic":"T","queueId":0,"brokerName":"b"}:5}')

    assert load(key) == {"brokerName": "b", "queueId": 0, "topic": "T"}


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        (
            '{"a":[{"x":1},2],"b":{"$ref":"$.a[0]"},"c":{"$ref":"$.a[0].x"}}',
            {"a": [{"x": 1}, 2], "b": {"x": 1}, "c": 1},
        ),
        ('{0:{"x":1},1:{"$ref":"$.0"}}', {"0": {"x": 1}, "1": {"x": 1}}),
        ('{"a.b":{"x":1},"c":{"$ref":"$.a\\\\.b"}}', {"a.b": {"x": 1}, "c": {"x": 1}}),
        (
            '{"%RETRY%g":{"x":1},"c":{"$ref":"$.\\\\%RETRY\\\\%g"}}',
            {"%RETRY%g": {"x": 1}, "c": {"x": 1}},
        ),
        (
            '{"a":{"b":{"$ref":"$.c"}},"c":{"x":1},"d":{"$ref":"$.a"}}',
            {"a": {"b": {"x": 1}}, "c": {"x": 1}, "d": {"b": {"x": 1}}},
        ),
        ('{"a":{"$ref":"$.a","other":1}}', {"a": {"$ref": "$.a", "other": 1}}),
        ('{"a":"$ref"}', {"a": "$ref"}),
    ],
)
def test_references_are_replaced_by_what_they_name(text: str, document: Any) -> None:
    assert load(text) == document


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$.b"}}',
        '{"a":{"$ref":"$.a"}}',
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"@"}}',
        '{"a":{"$ref":7}}',
        '{"a":{"$ref":"$["}}',
        '{"a":{"$ref":"$[0]"}}',
        '{"a":[1],"b":{"$ref":"$.a[' + "9" * 5000 + ']"}}',
        '{"a":1,"b":{"$ref":"$.a.c"}}',
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON: "):
        load(text)


def bomb(levels: int, width: int) -> str:
    """Lists of references to the list before: a short text that stands for `width ** levels`
    objects.
    """
    references = (",".join([f'{{"$ref":"$.a{level}"}}'] * width) for level in range(levels))
    lists = [f'"a{level}":[{each}]' for level, each in enumerate(references, 1)]
    return "{" + ",".join(['"a0":[{"x":1}]', *lists]) + "}"


def values_of(document: Any) -> int:
    """How many values a reader comes across that goes through all of it."""
    items = (
        document.values()
        if isinstance(document, dict)
        else document
        if isinstance(document, list)
        else ()
    )
    return 1 + sum(map(values_of, items))


def test_references_make_no_more_values_than_the_text_has_characters() -> None:
    with pytest.raises(ValueError, match="references make more than"):
        load(bomb(levels=9, width=10))


def test_the_same_path_in_many_spellings_is_counted_each_time() -> None:
    many = ",".join(["1"] * 1000)
    spellings = ",".join(f'{{"$ref":"$.b[{"0" * at}0]"}}' for at in range(60))
    with pytest.raises(ValueError, match="references make more than"):
        load(f'{{"b":[[{many}]],"c":[{spellings}]}}')


@given(width=st.integers(0, 12), levels=st.integers(0, 6))
def test_whatever_is_shared_the_result_stays_in_proportion_to_the_text(
    width: int, levels: int
) -> None:
    text = bomb(levels, width)
    try:
        document = load(text)
    except ValueError:
        return
    assert values_of(document) <= max(1000, len(text))


def test_objects_that_are_used_some_times_are_shared() -> None:
    """As fastjson writes a heartbeat of groups that have one subscription in common."""
    subscription = '{"topic":"T","subString":"*","subVersion":1,"tagsSet":[],"codeSet":[],"expressionType":"TAG"}'
    first = f'{{"groupName":"g0","subscriptionDataSet":[{subscription}]}}'
    others = ",".join(
        f'{{"groupName":"g{at}","subscriptionDataSet":[{{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}}]}}'
        for at in range(1, 500)
    )
    document = load(f'{{"consumerDataSet":[{first},{others}]}}')
    assert document["consumerDataSet"][499]["subscriptionDataSet"][0]["topic"] == "T"


def test_a_text_in_the_dialect_has_no_more_values_than_its_reader_takes() -> None:
    text = "{" + ",".join(f"'k{at}':{at}" for at in range(50)) + "}"
    assert len(load(text, 101)) == 50
    with pytest.raises(ValueError, match="not standard JSON, and more than 100 values"):
        load(text, 100)
    assert load('[1,{"a":[2,3]}]', 0) == [1, {"a": [2, 3]}]


@pytest.mark.parametrize("encode", [str, str.encode])
def test_a_text_has_no_more_bare_keys_than_its_reader_takes(
    encode: Callable[[str], bytes | str],
) -> None:
    """A megabyte of bare keys takes 0.2 s, although only they are not standard."""
    text = encode("{" + ",".join(f"{at}:[1,2]" for at in range(50)) + "}")
    assert load(text, 50) == load(text) == {str(at): [1, 2] for at in range(50)}
    for few in 49, 0:
        with pytest.raises(ValueError, match="not standard JSON, and more than"):
            load(text, few)


@pytest.mark.parametrize("text", ["{", "[", "[[", "{{", "[{"])
def test_a_text_that_ends_where_a_value_should_be_is_told_so(text: str) -> None:
    with pytest.raises(
        ValueError, match=f"wanted a value at character {len(text)}, found 'the end'"
    ):
        load(text)


@pytest.mark.parametrize("nested", ['{"a":1}', '[{"a":1}]'])
def test_an_object_in_a_key_has_no_objects_as_keys(nested: str) -> None:
    """Each level would escape the quotes of the one inside once more: 150 characters would become
    2^60.
    """
    assert load(f'{{{{"a":{nested}}}:1}}') == {
        json.dumps({"a": json.loads(nested)}, separators=(",", ":")): 1
    }
    with pytest.raises(ValueError, match="as key"):
        load("{" * 12 + '"a":1' + "}:1" * 11 + "}")
    with pytest.raises(ValueError, match="as key"):
        load('{{"a":[{{"b":1}:1}]}:1}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{0",
        "{0:",
        "{0:1",
        "{0:1,",
        "{0:1,}",
        "{0 1}",
        "{0:1}x",
        "{a:1}",
        "{null:1}",
        "{1.5:1}",
        "{[1]:1}",
        "[0:1]",
        "[1,,2]",
        "{0:'a}",
        '{0:"a}',
        '{0:"\\x"}',
        "{0:'\\x'}",
        "{0:True}",
        "{0:None}",
        "{0:NaN}",
        "{0:1e999}",
        '{0:"\\ud800"}',
        "{0:" + "9" * 5000 + "}",
        "[" * 100,
        "{0:" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "{'0':" + "[" * 65 + "]" * 65 + "}",
    ],
)
def test_what_is_neither_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        load(text)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        load(b'{0:"\xff"}')


def test_a_refusal_says_what_was_wanted_where() -> None:
    with pytest.raises(ValueError, match=r"wanted ':' at character 3, found '1}'"):
        load("{0 1}")


@given(st.text(st.sampled_from("{}[]:,\"'\\019.-eE$refa \ntuls"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        dump_dialect(load(text))


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        load(data)


# read by the standard parser


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (b"{0:{1:2},-5:[3]}", {"0": {"1": 2}, "-5": [3]}),
        ('{"a{1:":2}', {"a{1:": 2}),
        ('{"a,1:":{1:2}}', None),
        ("{01:2}", None),
        ("{-0:2}", None),
        ("[1,2:3]", None),
        ("{1.5:2}", None),
        ("{'a':2}", None),
    ],
)
def test_keys_get_quotes_where_nothing_else_can_be_meant(document: bytes | str, read: Any) -> None:
    if read is None:
        with pytest.raises(ValueError, match=r"\w"):
            load_quick(document)
    else:
        assert load_quick(document) == load(document) == read


def test_a_text_that_looks_like_a_key_is_read_the_slow_way() -> None:
    assert load('{"a,1:":{1:2}}') == {"a,1:": {"1": 2}}
