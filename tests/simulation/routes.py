"""That every name server knows every broker, and that clients use what they know."""

from __future__ import annotations

from typing import Final

from roquet.protocol.bodies.tables import Route, parse
from roquet.protocol.headers.route import RouteHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels
from tests.simulation.clients import BATCH_SIZE_MAX, TOPIC
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT, QUEUES

ASKER_ADDRESS: Final = "10.0.9.3"
CALL_MS: Final = 3000
KNOWN_WITHIN_S: Final = 45
"""Brokers tell of themselves every 30 s at the most."""
CLIENTS_ASK_S: Final = 35.0
"""Clients ask for routes every 30 s."""


def check_all_are_found_again(cluster: Cluster) -> None:
    """In a settled cluster: each name server soon tells of all brokers, then all masters are sent
    to, and the group gets what they were sent.
    """
    for _ in range(KNOWN_WITHIN_S):
        missing = {name: _missing(cluster, name) for name in cluster.name_servers}
        if not any(missing.values()):
            break
        cluster.run_for(1)
    assert not any(missing.values()), f"these are unknown to name servers: {missing}"
    cluster.run_for(CLIENTS_ASK_S)
    before = {each.name: len(each.acknowledged) for each in cluster.sets}
    sent = (
        BATCH_SIZE_MAX * QUEUES * len(cluster.sets)
    )  # at least a request for each queue: they come in turn
    cluster.produce(sent)
    new = {each.name: len(each.acknowledged) - before[each.name] for each in cluster.sets}
    assert all(new.values()), f"after all was well, so many sends went where: {new}"
    assert sum(new.values()) == sent, f"of {sent} sends so many were acknowledged where: {new}"
    cluster.wait_until_all_received()


def known_addresses(cluster: Cluster, name_server: str) -> set[tuple[str, int, str]]:
    """Broker name, broker id and address of all that a name server gives for the topic."""
    address = f"{cluster.host(name_server).address}:{NAME_SERVER_PORT}"
    asker = cluster.sim.host(ASKER_ADDRESS)
    route = asker.call(lambda: _route_from(address))
    asker.kill()
    with_queues = {queue.broker_name for queue in route.queues}
    return {
        (broker.broker_name, broker_id, at)
        for broker in route.brokers
        for broker_id, at in broker.addresses.items()
        if broker.broker_name in with_queues
    }


def _missing(cluster: Cluster, name_server: str) -> set[tuple[str, int, str]]:
    configs = [node.config for node in cluster.brokers.values()]
    due = {(config.broker_name, config.broker_id, config.address) for config in configs}
    return due - known_addresses(cluster, name_server)


async def _route_from(address: str) -> Route:
    channels = Channels()
    try:
        request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(TOPIC).write())
        answer = await channels.call(address, request, CALL_MS)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return Route()
        return parse(checked(answer, address).body, Route.from_json)
    finally:
        await channels.close()
