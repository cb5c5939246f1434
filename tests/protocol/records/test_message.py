"""Messages, their properties, tag codes and ids."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import MessageError
from roquet.protocol.records.message import (
    RESERVED_PROPERTIES,
    Message,
    MessageQueue,
    check_group,
    check_queue,
    check_topic,
    java_hash,
    join_properties,
    offset_message_id,
    parse_offset_message_id,
    split_properties,
    tag_code,
)
from tests.protocol.strategies import text

property_text = text.filter(lambda value: value != "" and not {"\x01", "\x02"} & set(value))


@given(st.dictionaries(property_text, property_text))
def test_properties_are_read_as_they_were_written(pairs: dict[str, str]) -> None:
    assert split_properties(join_properties(pairs)) == pairs
    assert split_properties(join_properties(pairs) + "\x02") == pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("TAGS\x01TagA\x02KEYS\x01k1 k2", {"TAGS": "TagA", "KEYS": "k1 k2"}),
        ("TAGS\x01TagA\x02", {"TAGS": "TagA"}),
        ("a\x011\x02a\x012", {"a": "2"}),
        ("a\x011\x01x", {"a": "1\x01x"}),
        ("a\x01\x02b\x011", {"b": "1"}),
        ("\x01v\x02b\x011", {"b": "1"}),
        ("novalue\x02b\x011", {"b": "1"}),
        ("\x02\x02\x02", {}),
    ],
)
def test_properties_are_split_as_apache_splits_them(text: str, pairs: dict[str, str]) -> None:
    assert split_properties(text) == pairs


@given(st.text())
def test_any_properties_text_can_be_split(text: str) -> None:
    assert all(name and value for name, value in split_properties(text).items())


@pytest.mark.parametrize(
    ("tag", "code"),
    [("TagA", 2598919), ("TagB", 2598920), ("中文", 646394), ("😀a", 54959966), ("", 0), (None, 0)],
)
def test_a_tag_code_is_javas_string_hash(tag: str | None, code: int) -> None:
    assert tag_code(tag) == code


@given(st.text())
def test_a_hash_is_a_signed_32_bit_number_of_either_path(text: str) -> None:
    number = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        number = (31 * number + unit) & 0xFFFFFFFF

    assert java_hash(text) & 0xFFFFFFFF == number
    assert -(2**31) <= java_hash(text) < 2**31


def test_the_offset_message_id_is_the_store_host_and_the_place() -> None:
    host = bytes.fromhex("0A000001 00002A9F")

    assert offset_message_id(host, 1000) == "0A00000100002A9F00000000000003E8"


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(1, 65535),
    st.integers(0, 2**63 - 1),
)
def test_an_offset_message_id_tells_host_and_place(address: bytes, port: int, at: int) -> None:
    message_id = offset_message_id(address + port.to_bytes(4, "big"), at)

    assert parse_offset_message_id(message_id) == (address, port, at)
    assert parse_offset_message_id(message_id.lower()) == (address, port, at)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "xyz",
        "0A",
        "0A00000100000000" + "0" * 16,
        "0A000001FFFF2A9F" + "0" * 16,
        "0A00000100002A9F" + "F" * 16,
    ],
)
def test_another_text_is_no_offset_message_id(text: str) -> None:
    with pytest.raises(MessageError, match="no offset message id"):
        parse_offset_message_id(text)


@given(st.text(max_size=60))
def test_any_text_is_an_offset_message_id_or_refused(text: str) -> None:
    try:
        parse_offset_message_id(text)
    except MessageError as error:
        assert repr(text) in str(error)  # noqa: PT017 - both outcomes are right


def test_a_message_carries_its_properties_by_apaches_names() -> None:
    message = Message(
        "T", b"x", tags="TagA", keys=("k1", "k2"), properties={"colour": "red"}, delay_level=3
    )

    assert split_properties(message.wire_properties("0A00")) == {
        "colour": "red",
        "UNIQ_KEY": "0A00",
        "WAIT": "true",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "DELAY": "3",
    }


def test_a_plain_message_carries_its_unique_key_and_whether_to_wait() -> None:
    text = Message("T", b"x", wait_stored=False).wire_properties("0A00")

    assert split_properties(text) == {"UNIQ_KEY": "0A00", "WAIT": "false"}


def test_one_key_needs_no_tuple() -> None:
    assert Message("T", b"x", keys="k").key_list == ("k",)
    assert Message("T", b"x").key_list == ()


def test_no_delay_is_shorter_than_none() -> None:
    with pytest.raises(MessageError, match="delay_level is -1: 0 is none"):
        Message("T", b"b", delay_level=-1)


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, 1 << 63, 1 << 64])
def test_a_number_that_does_not_fit_javas_int_is_refused_by_its_name(number: int) -> None:
    with pytest.raises(
        MessageError, match=f"flag is {number}: allowed are -2147483648 to 2147483647"
    ):
        Message("T", b"x", flag=number)
    with pytest.raises(MessageError, match=f"delay_level is {number}"):
        Message("T", b"x", delay_level=number)


@pytest.mark.parametrize("level", [19, 60, 2**31 - 1])
def test_a_delay_level_above_the_usual_ones_is_told_as_it_may_be_meant_as_a_time(
    level: int,
) -> None:
    with pytest.warns(UserWarning, match=f"^delay_level is {level}: it is the number") as told:
        message = Message("T", b"x", delay_level=level)
    assert [warning.filename for warning in told] == [__file__]
    assert f"DELAY\x01{level}" in message.wire_properties("0A00"), "brokers may have more levels"


def test_the_usual_delay_levels_are_not_told_of() -> None:
    levels = [Message("T", b"x", delay_level=level).delay_level for level in range(19)]
    assert levels == [*range(19)]


@pytest.mark.parametrize("number", [(1 << 31) - 1, -(1 << 31)])
def test_a_flag_is_any_int_of_javas(number: int) -> None:
    assert Message("T", b"x", flag=number).flag == number


def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    bad = "a\ud800b"
    for what, arguments in (
        ("tags", {"tags": bad}),
        ("keys", {"keys": ("k", bad)}),
        ("properties", {"properties": {bad: "v"}}),
        ("properties", {"properties": {"n": bad}}),
    ):
        with pytest.raises(MessageError, match=f"{what}: .* is no Unicode text"):
            Message("T", b"x", **arguments)


def test_properties_that_no_broker_takes_are_refused() -> None:
    for value in ("v" * 32_767, "\u4e2d" * 11_000):
        message = Message("T", b"x", properties={"n": value})
        with pytest.raises(
            MessageError, match=r"properties, tags and keys of 3[0-9]{4} bytes, allowed are 32767"
        ):
            message.wire_properties("0A00")
    Message("T", b"x", properties={"n": "v" * 32_000}).wire_properties("0A00")


def test_a_message_needs_a_body() -> None:
    with pytest.raises(MessageError, match="body of at least one byte"):
        Message("T", b"")


@pytest.mark.parametrize(
    "body", [bytearray(b"ab"), memoryview(b"cabd")[1:3], memoryview(b"a-b")[::2]]
)
def test_other_kinds_of_bytes_are_copied(body: Any) -> None:
    message = Message("T", body)
    if isinstance(body, bytearray):
        body[:] = b"zz"
    assert type(message.body) is bytes
    assert message.body == b"ab"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": "text"}, r"body is of type str: give bytes \(text.encode\(\)\)"),
        ({"body": None}, "body is of type NoneType: give bytes"),
        ({"body": 5}, "body is of type int: give bytes"),
        ({"body": [1, 2]}, "body is of type list: give bytes"),
        ({"topic": b"T"}, "topic is b'T' of type bytes: give a name"),
        ({"topic": None}, "topic is None of type NoneType"),
        ({"tags": ["a", "b"]}, r"tags is \['a', 'b'\] of type list: give one text, or None"),
        ({"tags": 5}, "tags is 5 of type int"),
        ({"tags": "a||b"}, r"tags is 'a\|\|b': no filter selects a tag with"),
        ({"tags": " a"}, "tags is ' a': no filter"),
        ({"tags": "a\n"}, r"tags is 'a\\n': no filter"),
        ({"keys": 5}, "keys is 5 of type int: give a text, or a tuple of texts"),
        ({"keys": ("k", 5)}, "a key of keys is 5 of type int: give a text"),
        ({"keys": "a b"}, "keys has 'a b': a blank separates keys"),
        ({"keys": ("a", "")}, "keys has '': a blank separates keys"),
        ({"keys": {"a": 1}}, "keys is {'a': 1} of type dict"),
        ({"properties": {"n": 5}}, "property 'n' is 5 of type int: give a text"),
        ({"properties": {5: "v"}}, "a name of properties is 5 of type int: give a text"),
        ({"properties": None}, "properties is None of type NoneType: give a dict of texts"),
        ({"properties": [("n", "v")]}, "properties is .* of type list"),
        ({"delay_level": "3"}, "delay_level is '3' of type str: give a number from 0 to"),
        ({"delay_level": True}, "delay_level is True of type bool"),
        ({"delay_level": 1.0}, "delay_level is 1.0 of type float"),
        ({"flag": None}, "flag is None of type NoneType: give a number from -2147483648"),
        ({"wait_stored": "false"}, "wait_stored is 'false' of type str: give True or False"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name_and_type(arguments: Any, error: str) -> None:
    with pytest.raises(MessageError, match=error):
        Message(**{"topic": "T", "body": b"x"} | arguments)


def test_a_large_value_is_shortened_in_the_error() -> None:
    wrong: Any = ["x" * 1000] * 1000
    with pytest.raises(MessageError) as raised:
        Message("T", b"x", tags=wrong)
    assert len(str(raised.value)) < 400


def test_keys_may_be_a_list_which_is_copied() -> None:
    keys: Any = ["a", "b"]
    message = Message("T", b"x", keys=keys)
    keys.append("c")
    assert message.key_list == ("a", "b")


def test_an_empty_tag_or_key_is_none() -> None:
    message = Message("T", b"x", tags="", keys="")
    assert message.key_list == ()
    assert split_properties(message.wire_properties("0A00")) == {"UNIQ_KEY": "0A00", "WAIT": "true"}


def test_a_number_may_be_an_enumeration_s() -> None:
    class Level(IntEnum):
        HOUR = 17

    assert "DELAY\x0117" in Message("T", b"x", delay_level=Level.HOUR).wire_properties("0A00")


@pytest.mark.parametrize(
    "queue",
    ["T@b:0", None, ("T", "b", 0), MessageQueue("T", "b", "0"), MessageQueue(b"T", "b", 0)],  # type: ignore[arg-type]
)
def test_what_is_no_queue_is_refused(queue: Any) -> None:
    with pytest.raises(MessageError, match=r"queue is .*: give a MessageQueue"):
        check_queue(queue)
    check_queue(MessageQueue("T", "b", 0))


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_a_reserved_property_is_refused(name: str) -> None:
    with pytest.raises(MessageError, match=f"property {name} belongs to the protocol"):
        Message("T", b"x", properties={name: "v"})


@pytest.mark.parametrize(("name", "value"), [("", "v"), (" ", "v"), ("n", ""), ("n", "\t")])
def test_a_blank_property_is_refused(name: str, value: str) -> None:
    with pytest.raises(MessageError, match="neither name nor value may be blank"):
        Message("T", b"x", properties={name: value})


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_separators_of_properties_are_refused_wherever_they_stand(separator: str) -> None:
    bad = f"a{separator}b"
    for arguments in (
        {"tags": bad},
        {"keys": bad},
        {"keys": ("k", bad)},
        {"properties": {bad: "v"}},
    ):
        with pytest.raises(MessageError, match="separates properties"):
            Message("T", b"x", **arguments)


@pytest.mark.parametrize("name", ["T", "a" * 127, "%RETRY%group", "x|y_z-9"])
def test_a_legal_name_is_taken_for_topics_and_groups(name: str) -> None:
    check_topic(name)
    check_group(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "ä", "a\n", "a" * 256])
def test_an_illegal_name_is_refused_for_topics_and_groups(name: str) -> None:
    with pytest.raises(MessageError):
        check_topic(name)
    with pytest.raises(MessageError):
        check_group(name)


def test_a_topic_may_be_shorter_than_a_group() -> None:
    check_group("a" * 255)
    with pytest.raises(MessageError, match="allowed are 127"):
        check_topic("a" * 128)


def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 10),
        MessageQueue("T", "a", 9),
        MessageQueue("S", "z", 1),
    ]

    assert list(map(str, sorted(queues))) == ["S@z:1", "T@a:9", "T@a:10", "T@b:0"]
