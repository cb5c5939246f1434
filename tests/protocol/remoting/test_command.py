"""Requests and responses in both header forms."""

from __future__ import annotations

import contextlib
import json
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import PeerError
from roquet.protocol.remoting.codes import LANGUAGE_NUMBERS, VERSION
from roquet.protocol.remoting.command import (
    BINARY,
    JSON,
    ONE_WAY,
    RESPONSE,
    Command,
    decode,
    to_text,
)
from tests.protocol.strategies import any_command, commands

JAVA_JSON_HEADER = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
JAVA_JSON = bytes.fromhex("0000007f 0000007b") + JAVA_JSON_HEADER
JAVA_BINARY = bytes.fromhex(
    "00000025 01000021 0069 00 0199 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54"
)
JAVA_BINARY_RESPONSE = bytes.fromhex(
    "0000001d 01000017 0011 00 0199 00000007 00000001 00000002 6e6f 00000000 0102"
)


def test_java_json_request_is_read_and_written_byte_for_byte() -> None:
    command = decode(JAVA_JSON[4:])

    assert command == Command(105, {"topic": "T"}, opaque=7, language="JAVA", version=409)
    assert command.encode() == JAVA_JSON


def test_java_binary_request_is_read_and_written_byte_for_byte() -> None:
    command = decode(JAVA_BINARY[4:])

    assert command == Command(
        105, {"topic": "T"}, opaque=7, language="JAVA", version=409, header_type=BINARY
    )
    assert command.encode() == JAVA_BINARY


def test_java_binary_response_is_read_and_written_byte_for_byte() -> None:
    command = decode(JAVA_BINARY_RESPONSE[4:])

    assert command == Command(17, {}, b"\x01\x02", 7, RESPONSE, "no", "JAVA", 409, BINARY)
    assert command.encode() == JAVA_BINARY_RESPONSE


@given(any_command)
def test_what_is_written_is_read_back(command: Command) -> None:
    assert decode(command.encode()[4:]) == command


@given(any_command)
def test_a_frame_says_its_own_size(command: Command) -> None:
    frame = command.encode()

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


@given(commands(JSON))
def test_a_json_header_is_strict_compact_json_with_its_members_in_order(command: Command) -> None:
    frame = command.encode()
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]

    members = json.loads(header)

    assert list(members) == sorted(members)
    assert json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode() == header


@given(any_command, st.integers(0, 400), st.none() | st.just("why"), st.binary(max_size=9))
def test_an_answer_keeps_opaque_and_form(
    request: Command, code: int, remark: str | None, body: bytes
) -> None:
    answer = request.answer(code, remark, {"offset": 5, "changed": True, "nothing": None}, body)

    assert (answer.opaque, answer.header_type) == (request.opaque, request.header_type)
    assert (answer.code, answer.remark, answer.body) == (code, remark, body)
    assert answer.fields == {"offset": "5", "changed": "true"}
    assert answer.is_response
    assert not answer.is_one_way
    assert answer.version == VERSION


@pytest.mark.parametrize(
    ("flag", "is_response", "is_one_way"),
    [(0, False, False), (RESPONSE, True, False), (ONE_WAY, False, True)],
)
def test_the_flag_tells_requests_from_responses(
    flag: int, is_response: bool, is_one_way: bool
) -> None:
    command = Command(1, flag=flag)

    assert (command.is_response, command.is_one_way) == (is_response, is_one_way)


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(4, "big") + header + body


def test_what_a_json_header_leaves_out_has_javas_defaults() -> None:
    command = decode(json_frame(b'{"code":105,"unknown":[1]}'))

    assert command == Command(105, {}, b"", 0, 0, None, "JAVA", 0, JSON)


def test_header_fields_that_are_no_text_become_text() -> None:
    command = decode(
        json_frame(b'{"code":1,"extFields":{"i":1,"b":true,"d":1.5,"n":null,"s":"x"}}')
    )

    assert command.fields == {"i": "1", "b": "true", "d": "1.5", "s": "x"}


def test_null_fields_and_remark_are_none() -> None:
    command = decode(json_frame(b'{"code":1,"extFields":null,"remark":null}'))

    assert (command.fields, command.remark) == ({}, None)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b'"code"',
        b"{",
        b"{}",
        b'{"code":"x"}',
        b'{"code":null}',
        b'{"code":{}}',
        b'{"code":1e999}',
        b'{"code":99999999999}',
        b'{"code":1,"opaque":4294967296}',
        b'{"code":1,"opaque":123456789012345678901234567890}',
        b'{"code":1,"flag":[]}',
        b'{"code":1,"version":"new"}',
        b'{"code":1,"remark":7}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":"topic"}',
        b'{"code":1,"remark":"\xff"}',
        b'{"code":1,"remark":"\\ud800"}',
    ],
)
def test_a_json_header_of_another_form_is_the_peers_fault(header: bytes) -> None:
    with pytest.raises(PeerError):
        decode(json_frame(header))


def test_an_unknown_language_is_read_and_sent_on_as_other_in_binary() -> None:
    command = decode(json_frame(b'{"code":1,"language":"COBOL"}'))
    assert command.language == "COBOL"

    command.header_type = BINARY
    assert decode(command.encode()[4:]).language == "OTHER"


@pytest.mark.parametrize("number", [-1, 14, 127])
def test_an_unknown_language_number_is_other(number: int) -> None:
    frame = bytearray(JAVA_BINARY[4:])
    frame[6:7] = number.to_bytes(1, "big", signed=True)

    assert decode(bytes(frame)).language == "OTHER"


def test_language_numbers_are_javas() -> None:
    assert [LANGUAGE_NUMBERS[name] for name in ("JAVA", "CPP", "PYTHON", "GO", "RUST")] == [
        0,
        1,
        3,
        9,
        12,
    ]


FIXED = Struct(">hbhii")


def binary_frame(
    remark: bytes = b"", fields: bytes = b"", *, remark_size: int = 0, fields_size: int = 0
) -> bytes:
    remark_part = (remark_size or len(remark)).to_bytes(4, "big", signed=True) + remark
    fields_part = (fields_size or len(fields)).to_bytes(4, "big", signed=True) + fields
    header = FIXED.pack(1, 0, 409, 7, 0) + remark_part + fields_part
    return (1 << 24 | len(header)).to_bytes(4, "big") + header + bytes(4) + b"body"


def field(name: bytes, value: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name + len(value).to_bytes(4, "big") + value


def test_of_a_repeated_binary_field_the_last_counts() -> None:
    assert decode(binary_frame(fields=field(b"a", b"1") + field(b"a", b"2"))).fields == {"a": "2"}


def test_an_empty_binary_value_is_none() -> None:
    command = decode(binary_frame(fields=field(b"a", b"") + field(b"b", b"1")))

    assert (command.fields, command.remark, command.body) == ({"b": "1"}, None, bytes(4) + b"body")


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("02000000"),
        bytes.fromhex("ff000000"),
        bytes.fromhex("00000001"),
        bytes.fromhex("01000000"),
        bytes.fromhex("01000003 000000"),
        binary_frame(b"no", remark_size=100),
        binary_frame(b"\xff"),
        binary_frame(fields=field(b"a", b"1"), fields_size=100),
        binary_frame(fields=b"\x00"),
        binary_frame(fields=b"\xff\xff" + b"a" * 9),
        binary_frame(fields=b"\x00\x64a"),
        binary_frame(fields=b"\x00\x01a"),
        binary_frame(fields=b"\x00\x01a\x00\x00"),
        binary_frame(fields=b"\x00\x01a\x00\x00\x00\x02v"),
        binary_frame(fields=b"\x00\x01a\xff\xff\xff\xffv"),
        binary_frame(fields=field(b"\xff", b"1")),
        binary_frame(fields=field(b"a", b"\xff")),
    ],
)
def test_a_binary_header_of_another_form_is_the_peers_fault(frame: bytes) -> None:
    with pytest.raises(PeerError):
        decode(frame)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_the_peers_fault(frame: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode(frame)


@given(st.sampled_from([JAVA_JSON[4:], JAVA_BINARY[4:], JAVA_BINARY_RESPONSE[4:]]), st.data())
def test_any_damage_to_a_frame_leaves_a_command_or_the_peers_fault(
    frame: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(frame)
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PeerError):
        decode(bytes(damaged)).answer(0).encode()


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (5, "5"), (-1, "-1"), ("x", "x")]
)
def test_header_values_are_written_as_java_writes_them(value: object, text: str) -> None:
    assert to_text(value) == text
