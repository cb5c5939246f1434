"""Which master a slave follows."""

from __future__ import annotations

import errno

from roquet.broker.ha.follower import MasterFollower
from roquet.protocol.remoting.codes import ResponseCode
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

SLAVE, FIRST, SECOND = "10.0.0.2", "10.0.0.1", "10.0.0.7"


def follower_of(node: BrokerNode) -> MasterFollower:
    follower = serving(node).parts.follower
    assert follower is not None
    return follower


def slave(sim: Simulation, **settings: object) -> BrokerNode:
    return started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, **settings)


def tell(node: BrokerNode, ha_address: str | None, address: str | None) -> None:
    """What a name server says of the slave's master."""

    async def do() -> None:
        follower_of(node).master_known(ha_address, address)

    node.host.call(do)


def followed(node: BrokerNode) -> tuple[str | None, str | None]:
    """The masters of which the slave copies the log and the tables."""
    follower = follower_of(node)
    return follower.client.master, follower.sync.master


def test_a_slave_follows_the_master_that_name_servers_name(sim: Simulation) -> None:
    node = slave(sim)
    assert followed(node) == (None, None)
    tell(node, f"{FIRST}:10912", f"{FIRST}:10911")
    assert followed(node) == (f"{FIRST}:10912", f"{FIRST}:10911")
    tell(node, f"{SECOND}:10912", f"{SECOND}:10911")
    assert followed(node) == (f"{SECOND}:10912", f"{SECOND}:10911")


def test_a_master_that_name_servers_have_lost_is_asked_for_its_log_all_the_same(
    sim: Simulation,
) -> None:
    node = slave(sim)
    tell(node, f"{FIRST}:10912", f"{FIRST}:10911")
    tell(node, None, None)
    assert followed(node) == (f"{FIRST}:10912", None)


def test_a_configured_address_is_the_only_one_for_the_log(sim: Simulation) -> None:
    node = slave(sim, haMasterAddress=f"{FIRST}:10912")
    assert followed(node) == (f"{FIRST}:10912", None)
    tell(node, f"{SECOND}:10912", f"{SECOND}:10911")
    assert followed(node) == (f"{FIRST}:10912", f"{SECOND}:10911")


def test_no_log_is_copied_to_a_drive_that_has_failed(sim: Simulation) -> None:
    started(sim, FIRST)
    node = slave(sim, syncFailureAction="readOnly")
    tell(node, f"{FIRST}:10912", f"{FIRST}:10911")
    client = Client(sim, sim.host("10.0.0.9"), f"{FIRST}:10911")
    assert send(client, b"0").code == ResponseCode.SUCCESS
    sim.run_for(20)
    node.host.drive.refuse("sync", errno.EIO)
    assert send(client, b"1").code == ResponseCode.SUCCESS
    sim.run_until(lambda: serving(node).store.failure is not None, 30)
    sim.run_for(1)
    assert followed(node) == (None, f"{FIRST}:10911")
    tell(node, f"{SECOND}:10912", f"{SECOND}:10911")
    assert followed(node) == (None, f"{SECOND}:10911")
