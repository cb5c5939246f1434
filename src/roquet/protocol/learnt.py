"""Sends that differ only in a few places: learn where, then compare instead of parse.

One producer's sends to one topic have the same header but for opaque, queue id, born time, unique key and, where it
sets them, keys and tags. `learn` takes a header that the general decoder has read, marks those places and proves that
they can change by themselves: it puts other values there and decodes again. A header of the same length whose other
bytes are the same then means the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final

from roquet.errors import PeerError
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import BINARY, JSON, Command, decode
from roquet.protocol.message import KEYS, TAGS, UNIQ_KEY, split_properties

_SAFE: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.:;,+*/@#$()=% "
"""Bytes that mean themselves in JSON, in properties and in UTF-8."""
_OPAQUE_AT: Final = 9
"""Of a binary header, within the frame."""


@dataclass(frozen=True, slots=True)
class Places:
    """Indices of the changing places in `Shape.match`'s answer, -1 for one that is not there."""

    opaque: int
    queue_id: int
    born: int
    unique_key: int
    keys: int
    tags: int


@dataclass(frozen=True, slots=True)
class Shape:
    """One form of send header.

    `command` is the send it was learnt from; all its fields but those in `places` hold for every match.
    """

    command: Command
    pieces: Struct
    constants: tuple[bytes, ...]
    places: Places
    header_end: int

    def match(self, frame: bytes) -> tuple[bytes, ...] | None:
        """What stands in the changing places, as it stands there; None when the frame has another form."""
        if len(frame) < self.header_end:
            return None
        values = self.pieces.unpack_from(frame)
        return values[1::2] if values[::2] == self.constants else None


def is_safe(text: bytes) -> bool:
    """Whether `text` may stand in a place for unique key, keys or tags without changing what is around it."""
    return not text.translate(None, _SAFE)


def shape_key(frame: bytes) -> bytes:
    """What all frames of one shape have in common at the least: header type and length."""
    return frame[:4]


def learn(frame: bytes, command: Command) -> Shape | None:
    """The shape of a send that was just decoded to `command`; None where its places cannot be told for sure."""
    if command.code == RequestCode.SEND_MESSAGE:
        queue_id, born, properties = "queueId", "bornTimestamp", "properties"
    else:
        queue_id, born, properties = "e", "g", "i"
    header_end = len(frame) - len(command.body)
    pairs = split_properties(command.fields.get(properties, ""))
    find = _find_json if command.header_type == JSON else _find_binary
    spans = [
        _find_opaque(frame, command, header_end),
        find(frame, header_end, queue_id, command.fields.get(queue_id, "")),
        find(frame, header_end, born, command.fields.get(born, "")),
        *(_find_property(frame, header_end, name, pairs) for name in (UNIQ_KEY, KEYS, TAGS)),
    ]
    if None in spans[:3] or any(
        name in pairs and span is None for name, span in zip(_PROPERTY_PLACES, spans[3:], strict=True)
    ):
        return None
    in_order = sorted(span for span in spans if span is not None)
    if any(before[1] > after[0] for before, after in pairwise(in_order)):
        return None
    if not _proven(frame, command, spans, (queue_id, born, properties)):
        return None
    places = Places(*(in_order.index(span) if span is not None else -1 for span in spans))
    return _shape(frame, command, header_end, in_order, places)


_PROPERTY_PLACES: Final = (UNIQ_KEY, KEYS, TAGS)
_Span = tuple[int, int]


def _shape(frame: bytes, command: Command, header_end: int, spans: list[_Span], places: Places) -> Shape:
    sizes: list[int] = []
    constants: list[bytes] = []
    at = 0
    for start, end in spans:
        constants.append(frame[at:start])
        sizes += (start - at, end - start)
        at = end
    constants.append(frame[at:header_end])
    sizes.append(header_end - at)
    pieces = Struct("".join(f"{size}s" for size in sizes))
    return Shape(command, pieces, tuple(constants), places, header_end)


def _find_opaque(frame: bytes, command: Command, header_end: int) -> _Span | None:
    if command.header_type == BINARY:
        return _OPAQUE_AT, _OPAQUE_AT + 4
    return _only(re.compile(rb'"opaque":(\d+)'), frame, header_end)


def _find_json(frame: bytes, header_end: int, name: str, value: str) -> _Span | None:
    if not value.isdigit():
        return None
    return _only(re.compile(rb'"%b":"(%b)"' % (re.escape(name.encode()), value.encode())), frame, header_end)


def _find_binary(frame: bytes, header_end: int, name: str, value: str) -> _Span | None:
    if not value.isdigit():
        return None
    raw_name, raw = name.encode(), value.encode()
    field = len(raw_name).to_bytes(2, "big") + raw_name + len(raw).to_bytes(4, "big") + raw
    return _only(re.compile(b"%b(%b)" % (re.escape(field[: -len(raw)]), re.escape(raw))), frame, header_end)


def _find_property(frame: bytes, header_end: int, name: str, pairs: Mapping[str, str]) -> _Span | None:
    value = pairs.get(name, "").encode()
    if not value or not is_safe(value):
        return None
    pattern = rb"%b(?:\x01|\\u0001)(%b)"
    return _only(re.compile(pattern % (name.encode(), re.escape(value))), frame, header_end)


def _only(pattern: re.Pattern[bytes], frame: bytes, header_end: int) -> _Span | None:
    """Where the pattern's group stands in the header, if it stands there once."""
    found = list(pattern.finditer(frame, 4, header_end))
    return found[0].span(1) if len(found) == 1 else None


def _proven(frame: bytes, command: Command, spans: list[_Span | None], names: tuple[str, str, str]) -> bool:
    """Whether other values in the places come out as just those values, and all else stays."""
    queue_id, born, properties = names
    changed = bytearray(frame)
    others: list[bytes] = []
    for index, span in enumerate(spans):
        old = frame[span[0] : span[1]] if span is not None else b""
        is_number = index < 3 and not (index == 0 and command.header_type == BINARY)
        new = bytes(_OTHER_DIGIT[letter] if is_number else _OTHER_LETTER for letter in old)
        if span is not None:
            changed[span[0] : span[1]] = new
        others.append(new)
    try:
        other = decode(bytes(changed))
    except PeerError:
        return False
    opaque = int.from_bytes(others[0], "big") if command.header_type == BINARY else int(others[0])
    wanted_fields = {**command.fields, queue_id: others[1].decode(), born: others[2].decode()}
    pairs = split_properties(command.fields.get(properties, ""))
    other_pairs = split_properties(other.fields.get(properties, ""))
    wanted_pairs = {
        **pairs,
        **{name: new.decode() for name, new in zip(_PROPERTY_PLACES, others[3:], strict=True) if new},
    }
    wanted_fields.pop(properties, None)
    other_fields = {name: value for name, value in other.fields.items() if name != properties}
    return (
        other.opaque == opaque
        and other_fields == wanted_fields
        and list(other_pairs.items()) == list(wanted_pairs.items())
        and (other.code, other.flag, other.remark, other.language, other.version, other.body)
        == (command.code, command.flag, command.remark, command.language, command.version, command.body)
    )


_OTHER_DIGIT: Final = {ord(digit): ord("1") + (int(digit) % 9) for digit in "0123456789"}
"""Another digit, never a leading zero."""
_OTHER_LETTER: Final = ord("x")
