"""The connections of a client: when they are opened, shared and replaced."""

from __future__ import annotations

import pytest

from roquet.errors import CallTimeout
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.producers import producer

SEND = RequestCode.SEND_MESSAGE_V2


def test_a_connection_is_replaced_after_two_timeouts_in_a_row_but_not_after_one(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, timeout_ms=500) as p:
            for silent in (0, 1, 0, 2, 0):
                broker.script[SEND] = [SILENCE] * silent
                for _ in range(silent):
                    with pytest.raises(CallTimeout):
                        await p.send("T", b"lost")
                if not silent:
                    await p.send("T", b"stored")

    cluster.run(send)
    first, _, after_one, _, _, after_two = (request.opaque for request in broker.requests[SEND])
    assert first < after_one, "still the same connection"
    assert after_two == 1, "the first request of a new connection"
