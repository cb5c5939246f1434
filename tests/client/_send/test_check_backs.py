"""Check-backs are bounded. What is answered to them: `tests/client/test_transactions`."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client._net.session import Session
from roquet.client._send.check_backs import AT_ONCE_MAX, WAITING_MAX, CheckBacks
from roquet.client.config import ClientConfig
from roquet.client.received import ReceivedMessage
from roquet.client.transaction_result import TransactionState
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.records.record import Record, decode
from roquet.transport.connection import Connection

HOST = bytes(8)
AT = 0
HALF = decode(Record(0, 0, 0, AT, 0, 0, HOST, 0, HOST, 0, AT, b"half", "T", "").encode())


async def test_check_backs_beyond_the_limit_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    may_end = asyncio.Event()
    began: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        began.append(message.message_id)
        await may_end.wait()
        return TransactionState.UNKNOWN

    session = Session(ClientConfig("10.0.0.1:9876"))
    check_backs = CheckBacks(session, "G", check)
    connection = Connection({})
    for number in range(WAITING_MAX + 1):
        header = CheckTransactionHeader(0, 0, transaction_id=f"tx-{number}")
        check_backs.asked(header, HALF, connection)
    await asyncio.sleep(0)

    assert len(began) == AT_ONCE_MAX
    (line,) = caplog.messages
    assert line.startswith("too many check-backs wait")
    assert f"transaction=tx-{WAITING_MAX} waiting={WAITING_MAX}" in line

    may_end.set()
    await session.tasks.finish(10)
    assert len(began) == WAITING_MAX
