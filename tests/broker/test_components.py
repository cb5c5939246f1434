"""What one part of a broker tells another, where no test of either part sees it."""

from __future__ import annotations

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import Client
from tests.broker.served import send, started
from tests.simulation.nodes import NAME_SERVER_PORT, NameServerNode
from tests.simulation.simulation import Simulation

MASTER, NAMES = "10.0.0.1", "10.0.0.5"


def test_name_servers_hear_of_a_new_topic_at_once(sim: Simulation) -> None:
    names = NameServerNode(sim.host(NAMES))
    names.start()
    sim.run_until(lambda: names.is_serving, 10)
    node = started(sim, MASTER, namesrvAddr=f"{NAMES}:{NAME_SERVER_PORT}")
    sim.run_for(15)
    assert send(Client(sim, sim.host("10.0.0.8"), node.address), b"x").code == 0
    sim.run_for(1)
    client = Client(sim, sim.host("10.0.0.9"), f"{NAMES}:{NAME_SERVER_PORT}")
    assert client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").code == ResponseCode.SUCCESS
