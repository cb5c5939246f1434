"""Answers to sends: templates with a few places to fill, in both header forms (performance.md, technique 4)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from roquet.protocol.codes import LANGUAGE_NUMBERS, VERSION
from roquet.protocol.command import BINARY, JSON, RESPONSE, to_text

_SIZES: Final = Struct(">iI")
_BINARY_HEAD: Final = Struct(">hbh")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_JSON_PREFIXES: Final[dict[int, bytes]] = {}


class SendAnswers:
    """Encodes "stored": message id, queue id, queue offset, and what is the same for every answer of this broker."""

    def __init__(self, region: str, trace_on: bool) -> None:
        always = f'"MSG_REGION":"{region}","TRACE_ON":"{to_text(trace_on)}"'.replace("%", "%%").encode()
        self._json = (
            b'{"code":0,"extFields":{%b,"msgId":"%%b","queueId":"%%d","queueOffset":"%%d"},"flag":1,'
            b'"language":"PYTHON","opaque":%%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (always, VERSION)
        )
        self._binary_head = _BINARY_HEAD.pack(0, LANGUAGE_NUMBERS["PYTHON"], VERSION)
        self._binary_flag = _INT.pack(RESPONSE) + _INT.pack(0)
        self._binary_always = _field(b"MSG_REGION", region.encode()) + _field(b"TRACE_ON", to_text(trace_on).encode())

    def json(self, message_ids: bytes, queue_id: int, queue_offset: int, opaque: bytes) -> bytes:
        """A whole frame; `opaque` in decimal digits."""
        header = self._json % (message_ids, queue_id, queue_offset, opaque)
        size = len(header)
        prefix = _JSON_PREFIXES.get(size)
        if prefix is None:
            prefix = _SIZES.pack(4 + size, JSON << 24 | size)
            if len(_JSON_PREFIXES) < 65536:
                _JSON_PREFIXES[size] = prefix
        return prefix + header

    def binary(self, message_ids: bytes, queue_id: int, queue_offset: int, opaque: bytes) -> bytes:
        """A whole frame; `opaque` as four bytes."""
        fields = b"".join(
            (
                self._binary_always,
                _field(b"msgId", message_ids),
                _field(b"queueId", b"%d" % queue_id),
                _field(b"queueOffset", b"%d" % queue_offset),
            )
        )
        size = len(self._binary_head) + 4 + len(self._binary_flag) + 4 + len(fields)
        head = _SIZES.pack(4 + size, BINARY << 24 | size)
        return b"".join((head, self._binary_head, opaque, self._binary_flag, _INT.pack(len(fields)), fields))


def _field(name: bytes, value: bytes) -> bytes:
    return b"".join((_SHORT.pack(len(name)), name, _INT.pack(len(value)), value))
