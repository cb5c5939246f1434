"""What a reply may carry. Requests and replies between clients: `tests/client/_net/test_replies`."""

from __future__ import annotations

import pytest

from roquet.client.producer import Producer
from roquet.client.received import ReceivedMessage
from roquet.errors import MessageError
from roquet.protocol.records.message import (
    CLUSTER,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    MessageQueue,
)

PROPERTIES = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "10.0.0.1@1", CLUSTER: "C"}
REQUEST = ReceivedMessage(
    "T", b"?", None, (), PROPERTIES, "U", "", MessageQueue("T", "a", 0), 0, 0, 0, 0, 0, 0, 0
)


async def test_a_reply_cannot_be_delayed() -> None:
    with pytest.raises(MessageError, match="a reply cannot be delayed"):
        await Producer("10.0.0.1:9876", "P").reply(REQUEST, b"!", delay_level=1)
