"""What a broker says of replication (GET_BROKER_HA_STATUS), as master and as slave."""

from __future__ import annotations

import pytest

from roquet.protocol.bodies.ha_status import HaStatus
from roquet.protocol.remoting.codes import RequestCode
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.simulation import Simulation

MASTER, SLAVE = "10.0.0.1", "10.0.0.2"


def status(client: Client) -> HaStatus:
    return HaStatus.from_json(client.ask(RequestCode.GET_BROKER_HA_STATUS))


@pytest.fixture
def clients(sim: Simulation) -> tuple[Client, Client]:
    """Of a master and of its slave, which has all."""
    master = started(sim, MASTER)
    slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{MASTER}:10912")
    to_master = Client(sim, sim.host("10.0.0.9"))
    for number in range(3):
        send(to_master, b"%d" % number)
    sim.run_until(lambda: serving(slave).store.log.end == serving(master).store.log.end, 10)
    sim.run_for(1)
    return to_master, Client(sim, sim.host("10.0.0.8"), f"{SLAVE}:10911")


def test_a_slave_that_has_all_is_in_sync(clients: tuple[Client, Client]) -> None:
    to_master, to_slave = clients
    seen, own = status(to_master), status(to_slave)
    (slave,) = seen.slaves
    assert slave.address.startswith(f"{SLAVE}:")
    assert (slave.acked, slave.sent, slave.behind, slave.behind_ms) == (seen.end, seen.end, 0, 0)
    assert (slave.is_in_sync, slave.state, slave.reason) == (True, "streaming", "")
    assert own.follower is not None
    assert (own.end, own.follower.master, own.follower.end) == (
        seen.end,
        f"{MASTER}:10912",
        seen.end,
    )
    assert (own.follower.is_active, own.follower.state, own.follower.reason) == (
        True,
        "following",
        "",
    )


def test_a_slave_that_gets_nothing_is_so_many_bytes_and_so_long_behind(
    sim: Simulation, clients: tuple[Client, Client]
) -> None:
    to_master, _ = clients
    before = status(to_master).end
    sim.network.partition(MASTER, SLAVE)
    send(to_master, b"4")
    sim.run_for(7)
    send(to_master, b"5")
    (slave,) = status(to_master).slaves
    assert (slave.acked, slave.behind) == (before, status(to_master).end - before)
    assert 6_400 < slave.behind_ms < 7_600
    assert slave.silent_ms > 6_400


def test_a_slave_that_is_gone_is_shown_with_the_reason(
    sim: Simulation, clients: tuple[Client, Client]
) -> None:
    to_master, _ = clients
    sim.host(SLAVE).kill()
    sim.run_for(5)
    (slave,) = status(to_master).slaves
    assert (slave.state, slave.is_in_sync) == ("gone", False)
    assert slave.reason.startswith("the connection ended")
    assert slave.silent_ms >= 5_000


def test_a_slave_without_its_master_says_why(
    sim: Simulation, clients: tuple[Client, Client]
) -> None:
    _, to_slave = clients
    sim.host(MASTER).kill()
    sim.run_for(8)
    follower = status(to_slave).follower
    assert follower is not None
    assert (follower.is_active, follower.state) == (False, "waiting")
    assert follower.reason.startswith("cannot connect: ")


def test_members_have_the_names_that_5x_has(clients: tuple[Client, Client]) -> None:
    to_master, to_slave = clients
    master, slave = (
        to_master.ask(RequestCode.GET_BROKER_HA_STATUS),
        to_slave.ask(RequestCode.GET_BROKER_HA_STATUS),
    )
    of_5x = {
        "master",
        "masterCommitLogMaxOffset",
        "inSyncSlaveNums",
        "haConnectionInfo",
        "haClientRuntimeInfo",
    }
    assert (master.keys(), slave.keys()) == (of_5x, of_5x)
    assert (master["master"], master["inSyncSlaveNums"], slave["master"]) == (True, 1, False)
    assert master["haConnectionInfo"][0].keys() >= {
        "addr",
        "slaveAckOffset",
        "diff",
        "inSync",
        "transferredByteInSecond",
        "transferFromWhere",
    }
    assert slave["haClientRuntimeInfo"].keys() >= {
        "masterAddr",
        "transferredByteInSecond",
        "maxOffset",
        "lastReadTimestamp",
        "lastWriteTimestamp",
        "masterFlushOffset",
        "activated",
    }
