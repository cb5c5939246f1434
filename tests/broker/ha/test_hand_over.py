"""A master that ends because of its drive: its slaves get the rest of its log first."""

from __future__ import annotations

import errno

from roquet.broker.ha.hand_over import HAND_OVER_S
from roquet.protocol.remoting.codes import ResponseCode
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

MASTER, SLAVE = "10.0.0.1", "10.0.0.2"


def couple(sim: Simulation) -> tuple[BrokerNode, BrokerNode, Client]:
    """A master with a record that its slave has, its slave, and a client of the master."""
    master = started(sim, MASTER)
    slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{MASTER}:10912")
    client = Client(sim, sim.host("10.0.0.9"), f"{MASTER}:10911")
    assert send(client, b"0").code == ResponseCode.SUCCESS
    sim.run_for(10)
    return master, slave, client


def fail(sim: Simulation, master: BrokerNode) -> None:
    """Let the next sync of the master fail."""
    master.host.drive.refuse("sync", errno.EIO)
    sim.run_until(lambda: serving(master).store.failure is not None, 30)


def run_until_ended(sim: Simulation, master: BrokerNode, within_s: float) -> None:
    process = master.host.process
    sim.run_until(lambda: master.host.process is not process, within_s)


def test_a_master_lets_its_slaves_have_what_its_drive_refuses(sim: Simulation) -> None:
    """ASYNC_FLUSH: it was acknowledged, and is nowhere else."""
    master, slave, client = couple(sim)
    sim.network.partition(MASTER, SLAVE)
    for body in b"1", b"2":
        assert send(client, body).code == ResponseCode.SUCCESS
    end = serving(master).store.log.end
    fail(sim, master)
    sim.network.heal()
    run_until_ended(sim, master, 30)
    assert serving(slave).store.log.end == end


def test_a_slave_that_copies_nothing_holds_up_its_master_for_a_short_time_only(
    sim: Simulation,
) -> None:
    master, _, client = couple(sim)
    sim.network.partition(MASTER, SLAVE)
    assert send(client, b"1").code == ResponseCode.SUCCESS
    fail(sim, master)
    began_s = sim.now_s
    run_until_ended(sim, master, 30)
    assert HAND_OVER_S <= sim.now_s - began_s < HAND_OVER_S + 5
