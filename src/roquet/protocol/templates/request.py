"""Header templates of requests: compare a header with an earlier one instead of parsing it.

One producer's sends to one topic have the same header except for opaque, queue id, born time,
unique key and, if set, keys and tags. One consumer's pulls differ in opaque, queue id and offsets.
`learn` takes a header that the slow path has decoded and marks these fields. To prove that each
can change without affecting others, it puts other values there and decodes the header again. A
later header of the same length that differs only in the marked bytes then needs no decoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from roquet.common.java import INT_MAX
from roquet.errors import PeerError
from roquet.protocol.records.message import KEYS, TAGS, UNIQ_KEY, split_properties
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, JSON, OPAQUE_AT, Command, decode

_SAFE: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.:;,+*/@#$()=% "
"""Bytes that need no escape in JSON, separate no properties, and are one character in UTF-8."""
OPAQUE: Final = "opaque"
_INT_MAX: Final = b"%d" % INT_MAX


@dataclass(frozen=True, slots=True)
class VariableFields:
    """The header fields, besides opaque, in which requests with one template may differ.

    `numbers` are number fields with the most digits each may have. Any number of that many digits
    is in Java's range, so a frame that matches needs no range check. `properties` is the name of
    the field with the message's properties, `texts` are the properties that may differ.
    """

    numbers: Mapping[str, int]
    properties: str = ""
    texts: tuple[str, ...] = ()


_MESSAGE_TEXTS: Final = (UNIQ_KEY, KEYS, TAGS)
_INT: Final = 9
_LONG: Final = 18
"""Digits of which every number fits Java's `int`, and its `long`."""
_PULLED: Final = {"queueId": _INT, "queueOffset": _LONG, "commitOffset": _LONG}
VARYING: Final[dict[int, VariableFields]] = {
    RequestCode.SEND_MESSAGE: VariableFields(
        {"queueId": _INT, "bornTimestamp": _LONG}, "properties", _MESSAGE_TEXTS
    ),
    RequestCode.SEND_MESSAGE_V2: VariableFields({"e": _INT, "g": _LONG}, "i", _MESSAGE_TEXTS),
    RequestCode.SEND_BATCH_MESSAGE: VariableFields({"e": _INT, "g": _LONG}, "i", _MESSAGE_TEXTS),
    RequestCode.PULL_MESSAGE: VariableFields(_PULLED),
    RequestCode.LITE_PULL_MESSAGE: VariableFields(_PULLED),
}


class HeaderTemplate(NamedTuple):
    """A header whose variable fields are marked.

    :param names: the variable fields: opaque, the numbers of `VariableFields`, then those of its
        texts that the request has, in the request's order.
    :param header_end: where the body begins in a frame.
    :param unpack_from: splits a header; pieces 0, 2, 4, ... are constant, the others variable.
    :param constants: the constant pieces. The first has the header's type and length.
    :param pick: takes the values of `names` from the pieces.
    """

    names: tuple[str, ...]
    header_end: int
    unpack_from: Callable[[bytes], tuple[bytes, ...]]
    constants: tuple[bytes, ...]
    pick: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]


def is_safe(text: bytes) -> bool:
    """Whether `text` can be a unique key, keys or tags without changing how the rest is read."""
    return not text.translate(None, _SAFE)


def is_number(digits: bytes) -> bool:
    """Whether `digits` are a non-negative Java `int` without leading zeros."""
    size = len(digits)
    return (
        digits.isdigit()
        and (digits[0] != 48 or size == 1)
        and (size <= _INT or (size == len(_INT_MAX) and digits <= _INT_MAX))
    )


def learn(frame: bytes, command: Command) -> HeaderTemplate | None:
    """Make the header template of a request.

    :param frame: the request without its length field.
    :param command: what `frame` was decoded to.
    :returns: None if requests of this kind have no variable fields, or if one of these cannot be
        located with certainty.
    """
    varying = VARYING.get(command.code)
    if varying is None:
        return None
    header_end = len(frame) - len(command.body)
    pairs = split_properties(command.fields.get(varying.properties, ""))
    find = _find_json if command.header_type == JSON else _find_binary
    found = {OPAQUE: _find_opaque(frame, command, header_end)}
    numbers = {name: command.fields.get(name, "") for name in varying.numbers}
    if any(len(number) > varying.numbers[name] for name, number in numbers.items()):
        return None
    found |= {name: find(frame, header_end, name, number) for name, number in numbers.items()}
    found |= {
        name: _find_property(frame, header_end, name, pairs)
        for name in pairs
        if name in varying.texts
    }
    spans = {name: span for name, span in found.items() if span is not None}
    if len(spans) < len(found):
        return None
    in_order = sorted(spans.values())
    if any(before[1] > after[0] for before, after in pairwise(in_order)):
        return None
    if not _is_proven(frame, command, spans, varying):
        return None
    return _template(frame, header_end, spans)


_Span = tuple[int, int]


def _template(frame: bytes, header_end: int, spans: Mapping[str, _Span]) -> HeaderTemplate:
    in_order = sorted(spans.values())
    sizes: list[int] = []
    constants: list[bytes] = []
    at = 0
    for start, end in in_order:
        constants.append(frame[at:start])
        sizes += (start - at, end - start)
        at = end
    constants.append(frame[at:header_end])
    sizes.append(header_end - at)
    pieces = Struct("".join(f"{size}s" for size in sizes))
    places = [2 * in_order.index(span) + 1 for span in spans.values()]
    return HeaderTemplate(
        tuple(spans), header_end, pieces.unpack_from, tuple(constants), itemgetter(*places)
    )


def _find_opaque(frame: bytes, command: Command, header_end: int) -> _Span | None:
    if command.header_type == BINARY:
        return OPAQUE_AT, OPAQUE_AT + 4
    return _only_span(re.compile(rb'"opaque":(\d+)'), frame, header_end)


def _find_json(frame: bytes, header_end: int, name: str, value: str) -> _Span | None:
    if not (value.isascii() and value.isdigit()):
        return None
    return _only_span(
        re.compile(rb'"%b":"(%b)"' % (re.escape(name.encode()), value.encode())), frame, header_end
    )


def _find_binary(frame: bytes, header_end: int, name: str, value: str) -> _Span | None:
    if not (value.isascii() and value.isdigit()):
        return None
    raw_name, raw = name.encode(), value.encode()
    field = len(raw_name).to_bytes(2, "big") + raw_name + len(raw).to_bytes(4, "big") + raw
    return _only_span(
        re.compile(b"%b(%b)" % (re.escape(field[: -len(raw)]), re.escape(raw))), frame, header_end
    )


def _find_property(
    frame: bytes, header_end: int, name: str, pairs: Mapping[str, str]
) -> _Span | None:
    value = pairs.get(name, "").encode()
    if not value or not is_safe(value):
        return None
    pattern = rb"%b(?:\x01|\\u0001)(%b)"
    return _only_span(re.compile(pattern % (name.encode(), re.escape(value))), frame, header_end)


def _only_span(pattern: re.Pattern[bytes], frame: bytes, header_end: int) -> _Span | None:
    """The span of the pattern's group in the header, if the pattern occurs exactly once."""
    found = list(pattern.finditer(frame, 4, header_end))
    return found[0].span(1) if len(found) == 1 else None


def _is_proven(
    frame: bytes, command: Command, spans: Mapping[str, _Span], varying: VariableFields
) -> bool:
    """Whether other values in `spans` are decoded as these values, with all else unchanged."""
    is_binary = command.header_type == BINARY
    changed = bytearray(frame)
    others: dict[str, bytes] = {}
    for name, (start, end) in spans.items():
        is_number = name in varying.numbers or (name == OPAQUE and not is_binary)
        new = bytes(
            _OTHER_DIGIT[letter] if is_number else _OTHER_LETTER for letter in frame[start:end]
        )
        changed[start:end] = others[name] = new
    try:
        other = decode(bytes(changed))
    except PeerError:
        return False
    opaque = int.from_bytes(others[OPAQUE], "big") if is_binary else int(others[OPAQUE])
    wanted_fields = {**command.fields, **{name: others[name].decode() for name in varying.numbers}}
    pairs = split_properties(wanted_fields.pop(varying.properties, ""))
    wanted_pairs = {
        **pairs,
        **{name: others[name].decode() for name in varying.texts if name in others},
    }
    other_fields = dict(other.fields)
    other_pairs = split_properties(other_fields.pop(varying.properties, ""))
    return (
        other.opaque == opaque
        and other_fields == wanted_fields
        and list(other_pairs.items()) == list(wanted_pairs.items())
        and (other.code, other.flag, other.remark, other.language, other.version, other.body)
        == (
            command.code,
            command.flag,
            command.remark,
            command.language,
            command.version,
            command.body,
        )
    )


_OTHER_DIGIT: Final = {ord(digit): ord("1") + (int(digit) % 9) for digit in "0123456789"}
"""Digit -> another digit, never 0, which would be a leading zero."""
_OTHER_LETTER: Final = ord("x")
