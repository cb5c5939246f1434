"""A whole broker stops whatever its drive says to that, and leaves nothing open."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from roquet.broker.server import Broker
from roquet.errors import DriveFailed, NotWritten
from roquet.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import config, send
from tests.simulation.simulation import Simulation


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_broker_whose_drive_fails_as_it_stops_can_be_started_again_in_the_same_process(
    sim: Simulation, trouble: int
) -> None:
    host = sim.host(ADDRESS)
    host.boot()
    broker = Broker(config(ADDRESS), host.runtime(), host.disk)
    host.call(broker.start)
    client = Client(sim, sim.host("10.0.0.9"))
    assert send(client, b"kept").code == ResponseCode.SUCCESS
    host.drive.trouble = trouble
    with pytest.raises(DriveFailed if trouble == errno.EIO else NotWritten, match=os.strerror(trouble)):
        host.call(broker.stop)
    host.drive.trouble = None
    again = Broker(config(ADDRESS), host.runtime(), host.disk)
    host.call(again.start)
    assert client.call(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0).fields["offset"] == "1"
    host.call(again.stop)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_a_broker_whose_stop_is_cut_short_listens_no_more(sim: Simulation, role: str) -> None:
    """It waits for a name server that is silent. The next broker needs the ports, and this one has no store now."""
    host = sim.host(ADDRESS)
    host.boot()
    settings = config(ADDRESS, namesrvAddr="10.0.0.50:9876", brokerRole=role, brokerId=int(role == "SLAVE"))
    broker = Broker(settings, host.runtime(), host.disk)
    host.call(broker.start)

    async def stop() -> None:
        async with asyncio.timeout(0.5):
            await broker.stop()

    with pytest.raises(TimeoutError):
        host.call(stop)
    again = Broker(settings, host.runtime(), host.disk)
    host.call(again.start)
    host.call(again.kill)
