"""Answers to sends: templates with a few places to fill, in both header forms (performance.md, technique 4)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from roquet.protocol.codes import LANGUAGE_NUMBERS, VERSION
from roquet.protocol.command import BINARY, JSON, RESPONSE, to_text

_SIZES: Final = Struct(">iI")
_BINARY_HEAD: Final = Struct(">hbh")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_JSON_PREFIXES: Final[dict[int, bytes]] = {}
_PIECES_MAX: Final = 4096


class SendAnswers:
    """Encodes "stored": message id, queue id, queue offset, and what is the same for every answer of this broker."""

    def __init__(self, region: str, trace_on: bool) -> None:
        always = f'"MSG_REGION":"{region}","TRACE_ON":"{to_text(trace_on)}"'.replace("%", "%%").encode()
        self._json = (
            b'{"code":0,"extFields":{%b,"msgId":"%%b","queueId":"%%b","queueOffset":"%%d"},"flag":1,'
            b'"language":"PYTHON","opaque":%%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (always, VERSION)
        )
        self._binary_head = _BINARY_HEAD.pack(0, LANGUAGE_NUMBERS["PYTHON"], VERSION)
        self._binary_always = _field(b"MSG_REGION", region.encode()) + _field(b"TRACE_ON", to_text(trace_on).encode())
        self._binary_pieces: dict[tuple[int, int, int], tuple[bytes, bytes, bytes, bytes]] = {}

    def json(self, message_ids: bytes, queue: bytes, queue_offset: int, opaque: bytes) -> bytes:
        """A whole frame; queue id and `opaque` in decimal digits."""
        header = self._json % (message_ids, queue, queue_offset, opaque)
        size = len(header)
        prefix = _JSON_PREFIXES.get(size)
        if prefix is None:
            prefix = _SIZES.pack(4 + size, JSON << 24 | size)
            if len(_JSON_PREFIXES) < _PIECES_MAX:
                _JSON_PREFIXES[size] = prefix
        return prefix + header

    def binary(self, message_ids: bytes, queue: bytes, queue_offset: int, opaque: bytes) -> bytes:
        """A whole frame; the queue id in decimal digits, `opaque` as four bytes."""
        return self.binary_all(message_ids + b",", (queue,), (queue_offset,), (opaque,))[0]

    def binary_all(
        self, ids: bytes, queues: Sequence[bytes], queue_offsets: Sequence[int], opaques: Sequence[bytes]
    ) -> list[bytes]:
        """What `binary` gives for each of several sends.

        :param ids: as many message ids for each of them, every one with a comma behind it.
        :param queues: queue ids in decimal digits.
        """
        step = len(ids) // len(queues)
        answers: list[bytes] = []
        at = 0
        for queue, queue_offset, opaque in zip(queues, queue_offsets, opaques, strict=True):
            offset = b"%d" % queue_offset
            sizes = step - 1, len(queue), len(offset)
            first, second, third, fourth = self._binary_pieces.get(sizes) or self._pieces_for(*sizes)
            message_ids = ids[at : at + step - 1]
            answers.append(b"".join((first, opaque, second, message_ids, third, queue, fourth, offset)))
            at += step
        return answers

    def json_all(
        self, ids: bytes, queues: Sequence[bytes], queue_offsets: Sequence[int], opaques: Sequence[bytes]
    ) -> list[bytes]:
        """What `json` gives for each of several sends; the parameters are those of `binary_all`."""
        step = len(ids) // len(queues)
        return [
            self.json(ids[at : at + step - 1], queue, queue_offset, opaque)
            for at, queue, queue_offset, opaque in zip(
                range(0, len(ids), step), queues, queue_offsets, opaques, strict=True
            )
        ]

    def _pieces_for(self, ids_size: int, queue_size: int, offset_size: int) -> tuple[bytes, bytes, bytes, bytes]:
        """What stands before opaque, message ids, queue id and queue offset, for values of these sizes."""
        always = self._binary_always + _name(b"msgId", ids_size)
        queue, offset = _name(b"queueId", queue_size), _name(b"queueOffset", offset_size)
        fields_size = len(always) + ids_size + len(queue) + queue_size + len(offset) + offset_size
        flags = _INT.pack(RESPONSE) + _INT.pack(0) + _INT.pack(fields_size)
        size = len(self._binary_head) + 4 + len(flags) + fields_size
        first = _SIZES.pack(4 + size, BINARY << 24 | size) + self._binary_head
        pieces = first, flags + always, queue, offset
        if len(self._binary_pieces) < _PIECES_MAX:
            self._binary_pieces[ids_size, queue_size, offset_size] = pieces
        return pieces


def _name(name: bytes, value_size: int) -> bytes:
    return b"".join((_SHORT.pack(len(name)), name, _INT.pack(value_size)))


def _field(name: bytes, value: bytes) -> bytes:
    return _name(name, len(value)) + value
