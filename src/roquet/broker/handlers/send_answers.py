"""Answers to sends that were stored."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack

from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import to_text
from roquet.protocol.templates.response import ResponseTemplate


class SendAnswers:
    """Encodes "stored": message id, queue id, queue offset, and what is the same for every answer of this broker."""

    def __init__(self, region: str, trace_on: bool) -> None:
        always = {"MSG_REGION": region, "TRACE_ON": to_text(trace_on)}
        self._form = ResponseTemplate(
            ResponseCode.SUCCESS, None, always, ("msgId", "queueId", "queueOffset")
        )

    def encode(
        self,
        ids: bytes,
        queues: Sequence[bytes],
        queue_offsets: Sequence[int],
        opaques: Sequence[bytes],
        *,
        binary: bool,
    ) -> list[bytes]:
        """A whole frame for each of several sends.

        :param ids: as many message ids for each of them, every one with a comma behind it.
        :param queues: queue ids in decimal digits.
        :param opaques: four bytes each where the header is a binary one, else in decimal digits.
        """
        form, ids_size = self._form, len(ids) // len(queues) - 1
        answers: list[bytes] = []
        queue_size = offset_size = -1
        columns = zip(
            iter_unpack(f"{ids_size}sx", ids), queues, queue_offsets, opaques, strict=True
        )
        for (message_ids,), queue, queue_offset, opaque in columns:
            offset = b"%d" % queue_offset
            if not binary:
                answers.append(form.json(opaque, (message_ids, queue, offset)))
                continue
            if len(queue) != queue_size or len(offset) != offset_size:
                queue_size, offset_size = len(queue), len(offset)
                first, second, third, fourth = form.binary((ids_size, queue_size, offset_size))
            answers.append(
                b"".join((first, opaque, second, message_ids, third, queue, fourth, offset))
            )
        return answers
