"""What a group has done comes to the brokers as it is when it is sent."""

from __future__ import annotations

import asyncio

from roquet.client._consume.offsets import BrokerOffsets
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.simulation.nodes import NameServerNode
from tests.simulation.simulation import Simulation

MASTER, SLAVE, NAMES = "10.0.0.1", "10.0.0.2", "10.0.0.7"
QUEUE = MessageQueue("T", "broker-a", 0)


def test_while_one_broker_does_not_answer_the_offset_at_the_next_does_not_fall() -> None:
    """Found by the simulation: a group that was at 11 went back to 5."""
    with Simulation("offsets") as sim:
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

        async def begin() -> tuple[Session, BrokerOffsets, asyncio.Task[None]]:
            session = await Session(
                ClientConfig(f"{NAMES}:9876", runtime=host.runtime())
            ).__aenter__()
            await session.routes.route("T")
            sim.network.isolate(MASTER)
            offsets = BrokerOffsets(session, "G")
            storing = offsets.commit(QUEUE, lambda: taken[0])
            return session, offsets, asyncio.get_running_loop().create_task(storing)

        session, offsets, storing = host.call(begin)
        sim.run_for(1)
        assert not storing.done(), "the master is asked first"
        taken[0] = 11
        sim.run_until(storing.done, 30)
        storing.result()
        assert serving(slave).parts.tables.offsets.committed("G", "T", 0) == 11
        host.call(lambda: offsets.commit(QUEUE, lambda: 10))
        assert serving(slave).parts.tables.offsets.committed("G", "T", 0) == 11, (
            "what was sent is known to be stored"
        )
        host.call(lambda: session.__aexit__(None, None, None))


def test_of_a_topic_one_queue_is_told_before_the_others(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Apache's broker loses one of two first offsets of a group that come at the same time."""
    broker.create("T", queues=3)
    times: list[float] = []

    def note(request: Command) -> None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            times.append(cluster.sim.now_s)

    async def store() -> None:
        async with Session(ClientConfig(NAME_SERVER, runtime=cluster.client.runtime())) as session:
            offsets = BrokerOffsets(session, "G")
            queues = [MessageQueue("T", "broker-a", number) for number in range(3)]
            await asyncio.gather(*(offsets.commit(queue, lambda: 1) for queue in queues))
            await asyncio.gather(*(offsets.commit(queue, lambda: 2) for queue in queues))

    broker.on_request = note
    cluster.run(store)

    assert times[0] < times[1] == times[2] < times[3] == times[4] == times[5]
    assert [broker.offsets["G", "T", number] for number in range(3)] == [2, 2, 2]
