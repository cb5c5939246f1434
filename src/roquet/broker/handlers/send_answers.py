"""Answers to sends that were stored."""

from __future__ import annotations

from collections.abc import Sequence

from roquet.protocol.answer_form import AnswerForm
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import to_text


class SendAnswers:
    """Encodes "stored": message id, queue id, queue offset, and what is the same for every answer of this broker."""

    def __init__(self, region: str, trace_on: bool) -> None:
        always = {"MSG_REGION": region, "TRACE_ON": to_text(trace_on)}
        self._form = AnswerForm(ResponseCode.SUCCESS, None, always, ("msgId", "queueId", "queueOffset"))

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
        form, step = self._form, len(ids) // len(queues)
        answers: list[bytes] = []
        at = 0
        for queue, queue_offset, opaque in zip(queues, queue_offsets, opaques, strict=True):
            message_ids, offset = ids[at : at + step - 1], b"%d" % queue_offset
            if binary:
                first, second, third, fourth = form.binary((step - 1, len(queue), len(offset)))
                answers.append(b"".join((first, opaque, second, message_ids, third, queue, fourth, offset)))
            else:
                answers.append(form.json(opaque, (message_ids, queue, offset)))
            at += step
        return answers
