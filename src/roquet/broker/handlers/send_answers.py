"""Encodes the answers to sends that were stored."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack

from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import to_text
from roquet.protocol.templates.response import ResponseTemplate


class SendAnswers:
    """Encodes SUCCESS answers: message ids, queue id, queue offset, region and trace switch."""

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
        """The frames that answer several sends, each of which stored the same number of messages.

        :param ids: offset message ids of all messages of all sends, each followed by a comma.
        :param queues: queue ids in decimal digits, one per send.
        :param queue_offsets: of the first message of each send.
        :param opaques: four bytes each for binary headers, decimal digits for JSON headers.
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
