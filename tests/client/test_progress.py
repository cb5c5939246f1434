"""What a group has done comes to the brokers as it is when it is sent."""

from __future__ import annotations

import asyncio

from roquet.client.progress import BrokerProgress
from roquet.client.session import Session
from roquet.protocol.message import MessageQueue
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import NameServerNode
from tests.simulation.simulation import Simulation

MASTER, SLAVE, NAMES = "10.0.0.1", "10.0.0.2", "10.0.0.7"
QUEUE = MessageQueue("T", "broker-a", 0)


def test_while_one_broker_does_not_answer_the_next_is_not_set_back() -> None:
    """Found by the simulation: a group that was at 11 went back to 5."""
    with Simulation("progress") as sim:
        names = NameServerNode(sim.host(NAMES))
        names.start()
        sim.run_until(lambda: names.is_serving, 10)
        known = {"namesrvAddr": f"{NAMES}:9876"}
        started(sim, MASTER, **known)
        slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, **known)
        send(Client(sim, sim.host("10.0.0.9")), b"creates the topic")
        sim.run_for(15)

        host, taken = sim.host("10.0.0.8"), [5]
        host.boot()

        async def begin() -> tuple[Session, BrokerProgress, asyncio.Task[None]]:
            session = await Session(f"{NAMES}:9876", runtime=host.runtime()).__aenter__()
            await session.routes.route("T")
            sim.network.isolate(MASTER)
            progress = BrokerProgress(session, "G")
            storing = progress.store(QUEUE, lambda: taken[0])
            return session, progress, asyncio.get_running_loop().create_task(storing)

        session, progress, storing = host.call(begin)
        sim.run_for(1)
        assert not storing.done(), "the master is asked first"
        taken[0] = 11
        sim.run_until(storing.done, 30)
        storing.result()
        assert serving(slave).parts.tables.progress.committed("G", "T", 0) == 11
        host.call(lambda: progress.store(QUEUE, lambda: 10))
        assert serving(slave).parts.tables.progress.committed("G", "T", 0) == 11, "what was sent is known to be stored"
        host.call(lambda: session.__aexit__(None, None, None))
