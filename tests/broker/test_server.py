"""A whole broker stops whatever its drive says to that, and leaves nothing open."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from roquet.broker.server import Broker
from roquet.errors import CannotListen, DriveFailed, NotWritten
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import config, send
from tests.simulation.simulation import Host, Simulation

PORT = config(ADDRESS).listen_port


def broker_on(host: Host) -> Broker:
    return Broker(config(ADDRESS), host.runtime(), host.disk)


def started_on(sim: Simulation) -> tuple[Host, Broker]:
    """A broker that runs, and its machine."""
    host = sim.host(ADDRESS)
    host.boot()
    broker = broker_on(host)
    host.call(broker.start)
    return host, broker


def test_a_full_drive_is_told_of_once_for_all_clients(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    host, broker = started_on(sim)
    clients = [Client(sim, sim.host(address)) for address in ("10.0.0.8", "10.0.0.9")]
    assert send(clients[0], b"kept").code == ResponseCode.SUCCESS
    host.drive.failure = errno.ENOSPC
    answers = [send(client, bytes(2000)) for _ in range(4) for client in clients]
    refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
    assert len(refused) >= 4
    told = f"request 310: no room on this server's drive ({os.strerror(errno.ENOSPC)})"
    assert {(answer.code, answer.remark) for answer in refused} == {
        (ResponseCode.SYSTEM_ERROR, told)
    }
    (line,) = [each for each in caplog.messages if "no room on the drive, requests" in each]
    assert "make room there: code=310 file=" in line
    assert "request failed" not in caplog.text
    host.drive.failure = None
    assert send(clients[0], b"taken again").code == ResponseCode.SUCCESS
    host.call(broker.stop)


@pytest.mark.parametrize(
    ("port", "role"),
    [
        (PORT, "clients, listenPort"),
        (PORT - 2, "clients, listenPort - 2"),
        (PORT + 1, "replication, listenPort + 1"),
    ],
)
def test_a_broker_without_one_of_its_ports_names_it_and_leaves_its_store_as_after_a_clean_stop(
    sim: Simulation, port: int, role: str
) -> None:
    host, broker = started_on(sim)
    host.call(broker.stop)
    taken = host.call(lambda: sim.loop.create_server(asyncio.Protocol, "0.0.0.0", port))
    again = broker_on(host)
    with pytest.raises(CannotListen) as refused:
        host.call(again.start)
    assert str(refused.value) == (
        f"cannot listen on 0.0.0.0:{port} ({role}): {os.strerror(errno.EADDRINUSE)}; "
        "end what listens there, or choose another port"
    )
    taken.close()
    third = broker_on(host)
    host.call(third.start)
    assert not third.store.was_crashed
    host.call(third.stop)


def test_a_broker_that_recovered_and_has_no_port_recovers_again(sim: Simulation) -> None:
    """What its filters must not trust is known to nobody but the broker that found the mark of a
    crash.
    """
    host, broker = started_on(sim)
    host.call(broker.kill)
    taken = host.call(lambda: sim.loop.create_server(asyncio.Protocol, "0.0.0.0", PORT))
    again = broker_on(host)
    with pytest.raises(CannotListen):
        host.call(again.start)
    taken.close()
    third = broker_on(host)
    host.call(third.start)
    assert third.store.was_crashed
    host.call(third.stop)


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_broker_whose_drive_fails_as_it_stops_can_be_started_again_in_the_same_process(
    sim: Simulation, failure: int
) -> None:
    host, broker = started_on(sim)
    client = Client(sim, sim.host("10.0.0.9"))
    assert send(client, b"kept").code == ResponseCode.SUCCESS
    host.drive.failure = failure
    with pytest.raises(
        DriveFailed if failure == errno.EIO else NotWritten, match=os.strerror(failure)
    ):
        host.call(broker.stop)
    host.drive.failure = None
    again = broker_on(host)
    host.call(again.start)
    assert client.call(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0).fields["offset"] == "1"
    host.call(again.stop)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_a_broker_whose_stop_is_cut_short_listens_no_more(sim: Simulation, role: str) -> None:
    """It waits for a name server that is silent. The next broker needs the ports, and this one has
    no store now.
    """
    host = sim.host(ADDRESS)
    host.boot()
    settings = config(
        ADDRESS, namesrvAddr="10.0.0.50:9876", brokerRole=role, brokerId=int(role == "SLAVE")
    )
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
