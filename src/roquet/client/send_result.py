"""What a broker says of a send.

See docs/protocol/request-codes.md#response-codes and docs/protocol/producing.md#what-is-acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from roquet.errors import PeerError
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import checked


class SendStatus(Enum):
    """In every case the message is stored by the master.

    SEND_OK: as safely as the broker is configured to. FLUSH_DISK_TIMEOUT: not on its disk in time.
    FLUSH_SLAVE_TIMEOUT: not on a slave in time. SLAVE_NOT_AVAILABLE: there is no slave, or it is far behind.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


_STATUS_OF_CODE = {int(status.value): status for status in SendStatus}


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is, and how safe.

    `message_id` is the client's id (UNIQ_KEY), the same on every try; `offset_message_id` the broker's, which says
    where it is stored. `remark` is the broker's explanation of a status other than SEND_OK.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    remark: str = ""


def send_results(
    response: Command, address: str, topic: str, broker_name: str, unique_keys: tuple[str, ...]
) -> list[SendResult]:
    """One result per unique key; a batch is answered with all its offset ids and the first queue offset.

    :raises ResponseError: the broker did not store the message. PeerError: the answer lacks something.
    """
    checked(response, address, _STATUS_OF_CODE)
    try:
        offset_ids = response.fields["msgId"].split(",")
        queue = MessageQueue(topic, broker_name, int(response.fields["queueId"]))
        first_offset = int(response.fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise PeerError(
            f"{address} answered a send without saying where the message is: {error}"
        ) from error
    if len(offset_ids) != len(unique_keys):
        raise PeerError(
            f"{address} answered {len(unique_keys)} messages with {len(offset_ids)} ids"
        )
    status, remark = _STATUS_OF_CODE[response.code], response.remark or ""
    return [
        SendResult(status, unique_key, offset_id, queue, first_offset + index, remark)
        for index, (unique_key, offset_id) in enumerate(zip(unique_keys, offset_ids, strict=True))
    ]
