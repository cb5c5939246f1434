"""Messages, their properties, tag codes and ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import MessageError
from roquet.protocol.records.message import (
    RESERVED_PROPERTIES,
    Message,
    MessageQueue,
    check_group,
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
