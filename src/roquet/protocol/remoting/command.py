"""Codec of requests and responses: code, flags, opaque, header fields, body.

A header is encoded as JSON (type 0) or in Apache's binary form (type 1). Each frame says which, and
both can come over one connection. A server answers in the form of the request.

See docs/protocol/remoting.md#json-header and docs/protocol/remoting.md#binary-header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from roquet.errors import PeerError
from roquet.protocol.json.dialect import dump_bytes, load_standard
from roquet.protocol.json.numbers import NumberError, as_int32
from roquet.protocol.remoting.codes import LANGUAGE_NUMBERS, LANGUAGES, VERSION

JSON: Final = 0
BINARY: Final = 1

RESPONSE: Final = 1
ONE_WAY: Final = 2

OPAQUE_AT: Final = 9
"""Byte position of opaque in a frame with a binary header, without the length field."""
_FRAME: Final = Struct(">iI")
_BINARY_FIXED: Final = Struct(">hbhiii")
_INT: Final = Struct(">i")
_FOUR_INTS: Final = Struct(">iiii")
_KEY_SIZE: Final = Struct(">h")
_HEADER_FIELDS: Final = Struct(">I")


@dataclass(slots=True)
class Command:
    """A request or a response.

    `fields` are the extended fields ("extFields"), as text, as on the wire.
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = "PYTHON"
    version: int = VERSION
    header_type: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    def answer(
        self,
        code: int,
        remark: str | None = None,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Make the response to this request, with its opaque and header form."""
        return Command(
            code,
            {}
            if fields is None
            else {name: to_text(value) for name, value in fields.items() if value is not None},
            body,
            self.opaque,
            RESPONSE,
            remark,
            header_type=self.header_type,
        )

    def encode(self) -> bytes:
        """The whole frame, with its length field."""
        header = self._json_header() if self.header_type == JSON else self._binary_header()
        size = 4 + len(header) + len(self.body)
        return b"".join(
            (_FRAME.pack(size, self.header_type << 24 | len(header)), header, self.body)
        )

    def _json_header(self) -> bytes:
        members: dict[str, object] = {
            "code": int(self.code),
            "extFields": self.fields,
            "flag": self.flag,
            "language": self.language,
            "opaque": self.opaque,
        }
        if self.remark is not None:
            members["remark"] = self.remark
        members["serializeTypeCurrentRPC"] = "JSON"
        members["version"] = self.version
        return dump_bytes(members)

    def _binary_header(self) -> bytes:
        remark = (self.remark or "").encode()
        pairs: list[bytes] = []
        for name, value in self.fields.items():
            name_bytes, value_bytes = name.encode(), value.encode()
            pairs += (
                _KEY_SIZE.pack(len(name_bytes)),
                name_bytes,
                _INT.pack(len(value_bytes)),
                value_bytes,
            )
        fields = b"".join(pairs)
        fixed = _BINARY_FIXED.pack(
            self.code,
            LANGUAGE_NUMBERS.get(self.language, LANGUAGE_NUMBERS["OTHER"]),
            self.version,
            self.opaque,
            self.flag,
            len(remark),
        )
        return b"".join((fixed, remark, _INT.pack(len(fields)), fields))


def to_text(value: object) -> str:
    """Encode a header field as Java does: booleans in lower case, numbers in decimal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)


HEADER_SIZE_MAX: Final = 256 * 1024
"""Bytes of a request's header.

Properties have at most 32,767 bytes, and JSON needs at most six for each. Decoding a header of
16 MiB would take half a second and 600 MB.
"""
_SIZE_MAX: Final = 0xFFFFFF


def decode(frame: bytes, header_size_max: int = _SIZE_MAX) -> Command:
    """Decode a frame, given without its length field.

    :raises PeerError: the header is damaged, of an unknown form, or too large.
    """
    if len(frame) < _HEADER_FIELDS.size:
        raise PeerError(f"frame of {len(frame)} bytes")
    (word,) = _HEADER_FIELDS.unpack_from(frame)
    header_type, header_end = word >> 24, 4 + (word & _SIZE_MAX)
    if header_end > len(frame):
        raise PeerError(f"header of {header_end - 4} bytes in a frame of {len(frame)}")
    if header_end - 4 > header_size_max:
        raise PeerError(f"header of {header_end - 4} bytes, allowed are {header_size_max}")
    if header_type == JSON:
        return _decode_json(frame[4:header_end], frame[header_end:])
    if header_type == BINARY:
        return _decode_binary(frame, header_end)
    raise PeerError(f"header type {header_type}, known are 0 (JSON) and 1 (binary)")


def _decode_json(header: bytes, body: bytes) -> Command:
    try:
        members = load_standard(header)
    except ValueError as error:
        raise PeerError(f"header is not JSON: {error}") from error
    if type(members) is not dict:
        raise PeerError("header is not a JSON object")
    fields = members.get("extFields")
    if fields is None:
        fields = {}
    elif type(fields) is not dict:
        raise PeerError("extFields is not a JSON object")
    elif not _are_texts(fields.values()):
        fields = {name: to_text(value) for name, value in fields.items() if value is not None}
    remark = members.get("remark")
    if remark is not None and type(remark) is not str:
        raise PeerError("remark is not text")
    code, opaque, flag, version = numbers = (
        members.get("code", ""),
        members.get("opaque", 0),
        members.get("flag", 0),
        members.get("version", 0),
    )
    try:
        _FOUR_INTS.pack(*numbers)  # the fastest check that all four are 32-bit integers
    except struct_error:
        code, opaque, flag, version = map(_int32, numbers)
    return Command(
        code,
        fields,
        body,
        opaque,
        flag,
        remark,
        str(members.get("language", "JAVA")),
        version,
        JSON,
    )


def _are_texts(values: Iterable[Any]) -> bool:
    try:
        "".join(values)  # the fastest check that all are text
    except TypeError:
        return False
    return True


def _int32(value: Any) -> int:
    """Convert a number that is written otherwise, for example as text.

    :raises PeerError: it is no 32-bit number.
    """
    try:
        return as_int32(value)
    except NumberError as error:
        raise PeerError(f"header member is missing or no 32-bit number: {error}") from error


def _decode_binary(frame: bytes, header_end: int) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _BINARY_FIXED.unpack_from(frame, 4)
        at = 4 + _BINARY_FIXED.size
        remark = _text(frame, at, remark_size, header_end) if remark_size > 0 else None
        at += max(remark_size, 0)
        (fields_size,) = _INT.unpack_from(frame, at)
        at += 4
        if at + max(fields_size, 0) > header_end:
            raise PeerError("header fields reach beyond the header")
        fields = _binary_fields(frame, at, at + max(fields_size, 0))
    except struct_error as error:
        raise PeerError(f"binary header is cut short: {error}") from error
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return Command(code, fields, frame[header_end:], opaque, flag, remark, name, version, BINARY)


def _binary_fields(frame: bytes, at: int, end: int) -> dict[str, str]:
    """Decode the fields of a binary header; a field with an empty value is left out.

    See docs/protocol/remoting.md#binary-header.
    """
    fields: dict[str, str] = {}
    while at < end:
        (name_size,) = _KEY_SIZE.unpack_from(frame, at)
        name = _text(frame, at + 2, name_size, end)
        at += 2 + name_size
        (value_size,) = _INT.unpack_from(frame, at)
        if value_size:
            fields[name] = _text(frame, at + 4, value_size, end)
        at += 4 + value_size
    if at != end:
        raise PeerError("the last header field is cut short")
    return fields


def _text(frame: bytes, at: int, size: int, end: int) -> str:
    if size < 0 or at + size > end:
        raise PeerError(f"text of {size} bytes reaches beyond its place in the header")
    try:
        return frame[at : at + size].decode()
    except UnicodeDecodeError as error:
        raise PeerError(f"text in the header is not UTF-8: {error}") from error
