"""What administrators ask of a member of a group."""

from __future__ import annotations

import pytest

from roquet.client.member_calls import reset_offsets, status_body
from roquet.errors import PeerError
from roquet.protocol.json_dialect import load
from roquet.protocol.message import MessageQueue

QUEUES = {MessageQueue("T", "broker-a", 1): 6, MessageQueue("T", "broker-a", 0): 5}


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:6,{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}',
        b'{"offsetTable":[{"brokerName":"broker-a","offset":6,"queueId":1,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":5,"queueId":0,"topic":"T"}]}',
    ],
)
def test_both_forms_of_a_reset_are_understood(body: bytes) -> None:
    assert reset_offsets(body) == QUEUES


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"offsetTable":5}', b'{"offsetTable":{"x":1}}'])
def test_what_is_no_table_of_offsets_breaks_the_protocol(body: bytes) -> None:
    with pytest.raises(PeerError):
        reset_offsets(body)


def test_the_status_is_written_as_java_reads_it() -> None:
    assert status_body(QUEUES) == (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:6}}'
    )
    assert len(load(status_body(QUEUES))["messageQueueTable"]) == 2
