"""Encodes the answers to sends that were stored."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack

from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import BINARY, Command, to_text
from roquet.protocol.templates.response import ResponseTemplate


class SendAnswers:
    """Encodes SUCCESS answers: message ids, queue id, queue offset, region and trace switch."""

    def __init__(self, region: str, trace_on: bool) -> None:
        always = {"MSG_REGION": region, "TRACE_ON": to_text(trace_on)}
        self._form = ResponseTemplate(
            ResponseCode.SUCCESS, None, always, ("msgId", "queueId", "queueOffset")
        )

    def encode(
        self, opaque: bytes, message_ids: bytes, queue: bytes, queue_offset: int, *, binary: bool
    ) -> bytes:
        """The frame that answers a send.

        :param opaque: four bytes for a binary header, decimal digits for a JSON header.
        :param message_ids: offset message ids of all messages, joined by commas.
        :param queue: queue id in decimal digits.
        :param queue_offset: of the first message.
        """
        offset = b"%d" % queue_offset
        if not binary:
            return self._form.json(opaque, (message_ids, queue, offset))
        sizes = len(message_ids), len(queue), len(offset)
        first, second, third, fourth = self._form.binary(sizes)
        return b"".join((first, opaque, second, message_ids, third, queue, fourth, offset))

    def encode_run(
        self,
        opaques: Sequence[bytes],
        ids: bytes,
        queues: Sequence[bytes],
        queue_offsets: Sequence[int],
        *,
        binary: bool,
    ) -> list[bytes]:
        """The frames that answer several sends, each of which stored the same number of messages.

        :param ids: offset message ids of all messages of all sends, each followed by a comma.
        """
        ids_size = len(ids) // len(queues) - 1
        answers: list[bytes] = []
        queue_size = offset_size = -1
        columns = zip(
            opaques, iter_unpack(f"{ids_size}sx", ids), queues, queue_offsets, strict=True
        )
        for opaque, (message_ids,), queue, queue_offset in columns:
            if not binary:
                answers.append(self.encode(opaque, message_ids, queue, queue_offset, binary=False))
                continue
            offset = b"%d" % queue_offset
            if len(queue) != queue_size or len(offset) != offset_size:
                queue_size, offset_size = len(queue), len(offset)
                sizes = ids_size, queue_size, offset_size
                first, second, third, fourth = self._form.binary(sizes)
            answers.append(
                b"".join((first, opaque, second, message_ids, third, queue, fourth, offset))
            )
        return answers


def encoded_opaque(request: Command) -> bytes:
    """The opaque of a request as `SendAnswers.encode` takes it."""
    if request.header_type == BINARY:
        return request.opaque.to_bytes(4, "big", signed=True)
    return b"%d" % request.opaque
