"""Response templates: responses that differ only in opaque, a few fields and the body.

A template is cut from a frame that `Command.encode` made, so both encode alike.

See docs/storage/performance.md#response-templates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from roquet.common.bounded_dict import BoundedDict
from roquet.protocol.remoting.command import BINARY, JSON, OPAQUE_AT, RESPONSE, Command

_SIZE: Final = Struct(">i")
_SIZES: Final = Struct(">iI")
_PIECES_MAX: Final = 4096
_MARKED_OPAQUE: Final = 0x7FFFFFFF
_MARK: Final = 0xFDD0
"""First of the Unicode noncharacters for internal use (U+FDD0): they mark the variable fields."""


class ResponseTemplate:
    """Encodes responses as `request.answer(code, remark, {**always, **values}, body).encode()`.

    The result lacks the body, which the caller appends.

    :param always: fields that are the same in every response.
    :param names: the fields whose values differ; values are ASCII without JSON escapes.
    """

    def __init__(
        self, code: int, remark: str | None, always: Mapping[str, str], names: Sequence[str]
    ) -> None:
        self._code = code
        self._remark = remark
        self._always = always
        self._names = names
        self._json = self._json_template()
        self._binary: BoundedDict[tuple[int, ...], tuple[bytes, ...]] = BoundedDict(_PIECES_MAX)

    def json(self, opaque: bytes, values: Sequence[bytes], body_size: int = 0) -> bytes:
        """Encode a response with a JSON header.

        :param opaque: decimal digits.
        :param values: in the order of `names`.
        :param body_size: bytes of the body that follows.
        """
        header = self._json % (*values, opaque)
        size = len(header)
        return _SIZES.pack(4 + size + body_size, JSON << 24 | size) + header

    def binary(self, sizes: tuple[int, ...], body_size: int = 0) -> tuple[bytes, ...]:
        """Return the constant pieces of a response with a binary header.

        The first piece precedes opaque (four bytes), each further one precedes a value. Only the
        body follows the last value.

        :param sizes: bytes of each value.
        """
        pieces = self._binary.get(sizes) or self._binary_pieces(sizes)
        if not body_size:
            return pieces
        first, *others = pieces
        return _SIZE.pack(_SIZE.unpack_from(first)[0] + body_size) + first[4:], *others

    def _frame(self, values: Sequence[str], opaque: int, header_type: int) -> bytes:
        """The frame without its length field."""
        fields = {**self._always, **dict(zip(self._names, values, strict=True))}
        return Command(
            self._code, fields, b"", opaque, RESPONSE, self._remark, header_type=header_type
        ).encode()[4:]

    def _json_template(self) -> bytes:
        marks = [chr(_MARK + number) for number in range(len(self._names))]
        template = self._frame(marks, _MARKED_OPAQUE, JSON)[4:].replace(b"%", b"%%")
        for mark in marks:
            template = template.replace(mark.encode(), b"%b")
        return template.replace(b'"opaque":%d' % _MARKED_OPAQUE, b'"opaque":%b')

    def _binary_pieces(self, sizes: tuple[int, ...]) -> tuple[bytes, ...]:
        frame = self._frame(["0" * size for size in sizes], 0, BINARY)
        names = [2 + len(name) + 4 for name in self._names]
        at = len(frame) - sum(names) - sum(sizes)
        pieces = [_SIZE.pack(len(frame)) + frame[:OPAQUE_AT]]
        before = OPAQUE_AT + 4
        for name, size in zip(names, sizes, strict=True):
            pieces.append(frame[before : at + name])
            before = at = at + name + size
        self._binary[sizes] = found = tuple(pieces)
        return found
