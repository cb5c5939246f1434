"""The result of a send.

See docs/protocol/request-codes.md#response-codes and
docs/protocol/producing.md#what-is-acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from roquet.errors import PeerError
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked


class SendStatus(Enum):
    """How safely a broker stored a message. With each status the master has the message.

    - SEND_OK: the message is on the disks and slaves that the broker's settings ask for.
    - FLUSH_DISK_TIMEOUT: the master did not sync it to its disk in time.
    - FLUSH_SLAVE_TIMEOUT: no slave acknowledged it in time.
    - SLAVE_NOT_AVAILABLE: no slave is connected, or the slaves lag too much.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT

    def __repr__(self) -> str:
        return str(self)


_STATUS_OF_CODE = {int(status.value): status for status in SendStatus}


class SendResult(NamedTuple):
    """Where a broker stored a message, and how safely.

    `message_id` is the unique key of the message; retries keep it. `offset_message_id` is the
    broker's id, which names host and physical offset. `queue_offset` is the message's offset in
    `queue`. `remark` is the broker's explanation of a status other than SEND_OK.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    remark: str = ""

    def __repr__(self) -> str:
        remark = f", remark={self.remark!r}" if self.remark else ""
        return (
            f"SendResult(status={self.status!r}, queue={str(self.queue)!r}, "
            f"queue_offset={self.queue_offset}, message_id={self.message_id!r}, "
            f"offset_message_id={self.offset_message_id!r}{remark})"
        )


def send_results(
    response: Command, address: str, sent_to: MessageQueue, unique_keys: Sequence[str]
) -> list[SendResult]:
    """Read a broker's answer to a send to the queue `sent_to`: one result per unique key.

    The answer to a batch has the offset message ids of all messages, but only the first queue
    offset.

    :raises ResponseError: the broker did not store the message.
    :raises PeerError: the answer lacks a field, or has another number of ids than messages.
    """
    checked(response, address, _STATUS_OF_CODE)
    try:
        offset_ids = response.fields["msgId"].split(",")
        queue_id = int(response.fields["queueId"])
        first_offset = int(response.fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise PeerError(
            f"answer of {address} to a send: a field is missing or no number: {error}"
        ) from error
    if len(offset_ids) != len(unique_keys):
        raise PeerError(
            f"answer of {address} to a send of {len(unique_keys)} messages has "
            f"{len(offset_ids)} message ids"
        )
    status, remark = _STATUS_OF_CODE[response.code], response.remark or ""
    queue = sent_to if queue_id == sent_to.queue_id else replace(sent_to, queue_id=queue_id)
    if len(offset_ids) == 1:
        return [SendResult(status, unique_keys[0], offset_ids[0], queue, first_offset, remark)]
    return [
        SendResult(status, unique_key, offset_id, queue, first_offset + index, remark)
        for index, (unique_key, offset_id) in enumerate(zip(unique_keys, offset_ids, strict=True))
    ]
