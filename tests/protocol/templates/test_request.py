"""Sends of one form: what is learnt from the first holds for every frame that matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.handlers.fastpath.cache import TemplateCache
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.records.message import KEYS, TAGS, UNIQ_KEY, join_properties
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, JSON, Command, decode
from roquet.protocol.templates.request import (
    OPAQUE,
    HeaderTemplate,
    is_safe,
    learn,
)

CODES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
FORMS: Final = [(code, header_type) for code in CODES for header_type in (JSON, BINARY)]
NUMBERS = {
    RequestCode.SEND_MESSAGE: ("queueId", "bornTimestamp"),
    RequestCode.SEND_MESSAGE_V2: ("e", "g"),
}


@dataclass(frozen=True)
class Send:
    opaque: int = 7
    queue_id: int = 3
    born: int = 1_700_000_000_000
    unique_key: str = "0A00000900010000"
    keys: str = "k1 k2"
    tags: str = "TagA"
    group: str = "G"
    topic: str = "T"
    body: bytes = b"hi"

    def frame(self, code: int, header_type: int, other: Mapping[str, str] | None = None) -> bytes:
        properties = {
            **(other or {}),
            UNIQ_KEY: self.unique_key,
            KEYS: self.keys,
            TAGS: self.tags,
            "WAIT": "true",
        }
        kind = SendHeader if code == RequestCode.SEND_MESSAGE else SendHeaderV2
        text = join_properties({name: value for name, value in properties.items() if value})
        header = kind(self.group, self.topic, self.queue_id, 0, self.born, 0, properties=text)
        return Command(
            code, header.write(), self.body, self.opaque, header_type=header_type
        ).encode()[4:]

    def values(self, code: int, header_type: int) -> dict[str, bytes]:
        numbers = zip(
            NUMBERS[RequestCode(code)], (b"%d" % self.queue_id, b"%d" % self.born), strict=True
        )
        opaque = b"%d" % self.opaque if header_type == JSON else self.opaque.to_bytes(4, "big")
        texts = {UNIQ_KEY: self.unique_key, KEYS: self.keys, TAGS: self.tags}
        return {
            OPAQUE: opaque,
            **dict(numbers),
            **{name: text.encode() for name, text in texts.items() if text},
        }


def learnt(frame: bytes) -> HeaderTemplate:
    template = learn(frame, decode(frame))
    assert template is not None
    return template


def matched(template: HeaderTemplate, frame: bytes) -> dict[str, bytes] | None:
    templates: TemplateCache[str] = TemplateCache()
    templates.add(template, "learnt")
    found = templates.match(frame)
    if found is None:
        return None
    learnt, header_end, values = found
    assert (learnt, header_end) == ("learnt", template.header_end)
    return dict(zip(template.names, values, strict=True))


safe = st.text("abcXYZ0189-_ ", min_size=4, max_size=4)
sends = st.builds(
    Send,
    opaque=st.integers(1, 9),
    queue_id=st.integers(0, 9),
    born=st.integers(10**12, 10**13 - 1),
    unique_key=safe,
    keys=safe,
    tags=safe,
)


@pytest.mark.parametrize(("code", "header_type"), FORMS)
@given(first=sends, second=sends)
def test_what_changes_from_send_to_send_is_found_in_its_place(
    code: int, header_type: int, first: Send, second: Send
) -> None:
    frame = first.frame(code, header_type)
    template = learn(frame, decode(frame))
    if template is None:  # a value stands in the header twice, so its place is not sure
        return

    other = second.frame(code, header_type)

    assert matched(template, other) == second.values(code, header_type)


@pytest.mark.parametrize(("code", "header_type"), FORMS)
def test_a_form_without_keys_and_tags_is_learnt_as_well(code: int, header_type: int) -> None:
    send = Send(keys="", tags="")

    assert matched(
        learnt(send.frame(code, header_type)), send.frame(code, header_type)
    ) == send.values(code, header_type)


@pytest.mark.parametrize(("code", "header_type"), FORMS)
@pytest.mark.parametrize("other", [Send(group="H"), Send(topic="U")])
def test_a_send_that_differs_elsewhere_does_not_match(
    code: int, header_type: int, other: Send
) -> None:
    template = learnt(Send().frame(code, header_type))

    assert matched(template, other.frame(code, header_type)) is None


@pytest.mark.parametrize(("code", "header_type"), FORMS)
def test_the_body_may_be_any(code: int, header_type: int) -> None:
    other = Send(body=b"another body")
    frame = other.frame(code, header_type)
    template = learnt(Send().frame(code, header_type))

    assert matched(template, frame) == other.values(code, header_type)
    assert frame[template.header_end :] == other.body


@pytest.mark.parametrize(("code", "header_type"), FORMS)
@given(at=st.integers(4, 200), byte=st.integers(0, 255))
def test_a_match_means_what_the_general_decoder_says(
    code: int, header_type: int, at: int, byte: int
) -> None:
    send = Send()
    frame = send.frame(code, header_type)
    template, learnt_from = learnt(frame), decode(frame)
    changed = bytearray(frame)
    at %= template.header_end
    changed[at] = byte
    values = matched(template, bytes(changed))
    if values is None or at < 4 or not usable(values, code, header_type):
        return

    command = decode(bytes(changed))

    assert all(command.fields[name] == values[name].decode() for name in NUMBERS[RequestCode(code)])
    assert (command.code, command.flag, command.language) == (
        learnt_from.code,
        0,
        learnt_from.language,
    )
    assert set(command.fields) == set(learnt_from.fields)


def usable(values: dict[str, bytes], code: int, header_type: int) -> bool:
    """What a handler makes sure of before it takes the values for what they are."""
    numbers = [
        values[name]
        for name in (*NUMBERS[RequestCode(code)], *([OPAQUE] if header_type == JSON else []))
    ]
    texts = [values[name] for name in (UNIQ_KEY, KEYS, TAGS)]
    return all(number.isdigit() and not number.startswith(b"0") for number in numbers) and all(
        map(is_safe, texts)
    )


@pytest.mark.parametrize(("code", "header_type"), FORMS)
def test_a_value_that_stands_in_the_header_twice_is_not_learnt(code: int, header_type: int) -> None:
    send = Send()
    frame = send.frame(code, header_type, {f"x{UNIQ_KEY}": send.unique_key})

    template = learn(frame, decode(frame))

    assert template is None


@pytest.mark.parametrize("text", ["a\x01b", 'a"b', "a\\b", "ä".encode().decode("latin-1"), "a\x00"])
def test_text_that_changes_what_is_around_it_is_not_safe(text: str) -> None:
    assert not is_safe(text.encode("latin-1"))


@pytest.mark.parametrize(("code", "header_type"), FORMS)
@pytest.mark.parametrize("number", ["\u0663", "\u06f0", "\u00b2"])
def test_digits_of_other_scripts_are_not_learnt(code: int, header_type: int, number: str) -> None:
    request = decode(Send().frame(code, header_type))
    request.fields[NUMBERS[RequestCode(code)][1]] = number
    frame = request.encode()[4:]

    assert learn(frame, decode(frame)) is None
