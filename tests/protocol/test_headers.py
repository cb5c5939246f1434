"""Typed header fields <-> the text fields of a command."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Int32, Int64
from roquet.errors import MessageError, Refused
from roquet.protocol import headers
from roquet.protocol.headers import Header
from roquet.protocol.headers.admin import QueryMessageHeader
from roquet.protocol.headers.members import RunningInfoHeader, UnregisterClientHeader
from roquet.protocol.headers.offsets import ConsumerStatusHeader, ResetOffsetHeader
from roquet.protocol.headers.pull import PullAnswer, PullHeader
from roquet.protocol.headers.replies import PushReplyHeader
from roquet.protocol.headers.route import RouteHeader
from roquet.protocol.headers.routing import RegisterBrokerHeader
from roquet.protocol.headers.send import SendAnswer, SendHeader, SendHeaderV2
from roquet.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import decode
from tests.protocol.strategies import int32, int64, text

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"

for module in pkgutil.iter_modules(headers.__path__):
    importlib.import_module(f"{headers.__name__}.{module.name}")


def below(kind: type[Header]) -> list[type[Header]]:
    return [each for direct in kind.__subclasses__() for each in (direct, *below(direct))]


KINDS = sorted(set(below(Header)), key=lambda kind: kind.__name__)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    members = (
        get_args(annotation)
        if isinstance(annotation, UnionType) or get_origin(annotation) is Union
        else ()
    )
    return st.one_of([BY_TYPE[member] for member in members or (annotation,)])


BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    Int32: int32,
    Int64: int64,
    str: text,
    bool: st.booleans(),
    NoneType: st.none(),
}


def any_of(kind: type[Header]) -> st.SearchStrategy[Header]:
    types = get_type_hints(kind, include_extras=True)
    return st.builds(
        kind,
        **{field.name: values(types[field.name]) for field in dataclasses.fields(kind)},  # type: ignore[arg-type]
    )


@given(st.sampled_from(KINDS).flatmap(any_of))
def test_every_header_is_read_as_it_was_written(header: Header) -> None:
    expected = {
        field.name: field.default
        if getattr(header, field.name) is None
        else getattr(header, field.name)
        for field in dataclasses.fields(header)  # type: ignore[arg-type]
    }

    assert type(header).read(header.write()) == type(header)(**expected)


@given(st.sampled_from(KINDS), st.dictionaries(text, text))
def test_any_fields_are_a_header_or_refused(kind: type[Header], fields: dict[str, str]) -> None:
    names = [name for header in KINDS for name in header.SPELLING.values()]
    try:
        kind.read(dict(zip(names, fields.values(), strict=False)) | fields)
    except Refused as refusal:
        assert refusal.code == ResponseCode.SYSTEM_ERROR  # noqa: PT017 - both outcomes are right


def test_fields_are_in_camel_case() -> None:
    assert PullHeader("G", "T", 1, 2, 3, 4, 5, 6).write() == {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "2",
        "maxMsgNums": "3",
        "sysFlag": "4",
        "commitOffset": "5",
        "suspendTimeoutMillis": "6",
        "subVersion": "0",
    }
    assert PullAnswer(0, 1, 2, 3).write() == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "2",
        "maxOffset": "3",
    }
    assert RegisterBrokerHeader("b", "a:1", "c", "a:2", 0, True, 7).write() == {
        "brokerName": "b",
        "brokerAddr": "a:1",
        "clusterName": "c",
        "haServerAddr": "a:2",
        "brokerId": "0",
        "compressed": "true",
        "bodyCrc32": "7",
    }


def test_some_names_are_spelt_in_their_own_way() -> None:
    assert UnregisterClientHeader("c").write() == {"clientID": "c"}
    assert QueryMessageHeader("T", "k", 1, 2, 3, True).write()["_UNIQUE_KEY_QUERY"] == "true"
    assert SendAnswer("id", 1, 2).write() == {
        "msgId": "id",
        "queueId": "1",
        "queueOffset": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_send_in_either_spelling_is_the_same_send() -> None:
    plain = SendHeader("G", "T", 1, 2, 3, 4, properties="p", max_reconsume_times=5, bname="b")
    short = SendHeaderV2(*dataclasses.astuple(plain))

    assert sorted(short.write()) == list("abcdefghijklmn")
    assert dataclasses.astuple(SendHeaderV2.read(short.write())) == dataclasses.astuple(plain)
    assert short.write()["i"] == plain.write()["properties"]
    assert short.write()["e"] == plain.write()["queueId"]
    assert (short.write()["l"], short.write()["m"]) == ("5", "false")


def test_a_missing_mandatory_field_refuses_the_request() -> None:
    with pytest.raises(Refused, match="header field topic is missing") as refused:
        RouteHeader.read({"acceptStandardJsonOnly": "true"})

    assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_a_field_with_a_short_name_is_told_of_by_its_own_name() -> None:
    fields = SendHeader("p", "t", 0, 0, 1, 0).write()
    short = SendHeaderV2("p", "t", 0, 0, 1, 0).write()
    for kind, wrong, name in (
        (SendHeader, {**fields, "bornTimestamp": "9223372036854775808"}, "bornTimestamp"),
        (SendHeaderV2, {**short, "g": "9223372036854775808"}, "bornTimestamp (g)"),
    ):
        with pytest.raises(Refused) as refused:
            kind.read(wrong)
        assert (
            refused.value.remark
            == f"header field {name}: '9223372036854775808' is no number up to {LONG_MAX}"
        )
    with pytest.raises(Refused, match=r"header field topic \(b\) is missing"):
        SendHeaderV2.read({name: text for name, text in short.items() if name != "b"})


def test_a_field_of_the_wrong_type_refuses_the_request() -> None:
    with pytest.raises(
        Refused, match="header field brokerId: 'first' is no number up to 9223372036854775807"
    ):
        RegisterBrokerHeader.read(
            {
                "brokerName": "b",
                "brokerAddr": "a",
                "clusterName": "c",
                "haServerAddr": "h",
                "brokerId": "first",
            }
        )


NUMBERS: Final = [
    (kind, field.name, kind.SPELLING.get(field.name), least, most)
    for kind in KINDS
    for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    for annotation in [get_type_hints(kind, include_extras=True)[field.name]]
    for types, least, most in (
        ({Int32, Int32 | None}, INT_MIN, INT_MAX),
        ({Int64, Int64 | None, int, int}, LONG_MIN, LONG_MAX),
    )
    if annotation in types
]


@pytest.mark.parametrize(
    ("kind", "name", "spelt", "least", "most"),
    NUMBERS,
    ids=[f"{kind.__name__}.{name}" for kind, name, *_ in NUMBERS],
)
def test_a_number_has_the_range_of_its_field_in_java(
    kind: type[Header], name: str, spelt: str | None, least: int, most: int
) -> None:
    written = any_header(kind).write()
    wire = spelt or next(wire for wire in written if wire.lower() == name.replace("_", ""))
    for fine in (least, most, 0, -1):
        assert getattr(kind.read({**written, wire: str(fine)}), name) == fine
    for wrong in (
        str(least - 1),
        str(most + 1),
        "9" * 5000,
        "1_0",
        " 1",
        "1 ",
        "1.0",
        "0x1",
        "--1",
        "NaN",
    ):
        with pytest.raises(
            Refused, match=rf"header field (\w+ \()?{wire}\)?: .*no number up to {most}"
        ) as refused:
            kind.read({**written, wire: wrong})
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
        with pytest.raises(MessageError, match=rf"{name} is -?\d+: allowed are {least} to {most}"):
            any_header(kind, **{name: most + 1}).write()
        with pytest.raises(MessageError, match=f"{name} is "):
            any_header(kind, **{name: least - 1}).write()
    assert getattr(kind.read({**written, wire: "+007"}), name) == 7
    assert getattr(kind.read({**written, wire: "-" + "0" * 5000 + "7"}), name) == -7


def any_header(kind: type[Header], **changes: int) -> Header:
    """With something in each field, but for none that may be missing."""
    some: dict[Any, Any] = {str: "x", bool: False}
    types = get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    members = {
        field.name: (get_args(types[field.name]) or (types[field.name],)) for field in fields
    }
    values = {
        name: next((some[part] for part in parts if part in some), 0)
        for name, parts in members.items()
    }
    return kind(**{**values, **changes})


def test_a_missing_or_empty_optional_field_has_its_default() -> None:
    assert RouteHeader.read({"topic": "T", "acceptStandardJsonOnly": ""}) == RouteHeader("T")
    assert RouteHeader.read({"topic": "T"}) == RouteHeader("T")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("1", False)]
)
def test_a_boolean_is_true_only_where_it_says_so(text: str, value: bool) -> None:
    assert (
        RouteHeader.read({"topic": "T", "acceptStandardJsonOnly": text}).accept_standard_json_only
        is value
    )


OF_GOLDEN_FRAMES: dict[int, type[Header]] = {
    37: EndTransactionHeader,
    39: CheckTransactionHeader,
    220: ResetOffsetHeader,
    221: ConsumerStatusHeader,
    222: ResetOffsetHeader,
    223: ConsumerStatusHeader,
    307: RunningInfoHeader,
    326: PushReplyHeader,
}


@pytest.mark.parametrize(
    "path",
    [path for code in OF_GOLDEN_FRAMES for path in sorted(GOLDEN.glob(f"*/{code}-*.request.bin"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_what_others_say_of_transactions_replies_and_members_is_understood_whole(
    path: Path,
) -> None:
    """No field of a real frame is lost, and those that are there mean the same when they are
    written again.
    """
    request = decode(path.read_bytes()[4:])
    written = OF_GOLDEN_FRAMES[request.code].read(request.fields).write()
    signed = {"AccessKey", "Signature", "SecurityToken"}
    said = {name: value for name, value in request.fields.items() if value and name not in signed}
    assert said.items() <= written.items()
