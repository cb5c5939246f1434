"""Who else has this broker's name, whether they live, and how far their logs reach."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import pytest

from roquet.broker.ha.replica_queries import (
    BrokerLiveness,
    addresses_of,
    liveness_of,
    log_range_of,
    refuse_second_master,
)
from roquet.errors import ConfigError, ResponseError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.protocol.bodies.tables import BrokerData, ClusterInfo
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.server import Server
from tests.admin.scripted import Reply, refuses, says
from tests.broker.served import config
from tests.simulation.simulation import Host, Simulation

T = TypeVar("T")

OURS: Final = "10.0.0.1:10911"
OTHER: Final = "10.0.0.2:10911"
NAMES: Final = ("10.0.0.7:9876", "10.0.0.8:9876")
LOG: Final = says({"table": {"commitLogMinOffset": "100", "commitLogMaxOffset": "900"}})


class Replicas:
    """Name servers and brokers that answer as a test says, and the broker that asks them."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._asking = sim.host("10.0.0.1")
        self.channels = Channels({})

    def serve(self, address: str, code: int, reply: Reply) -> Host:
        """A server that answers one request."""

        def handle(request: Command, _: Connection) -> Answer:
            return reply(request)

        name, _, port = address.rpartition(":")
        host = self.sim.host(name)
        host.call(lambda: Server({code: handle}).listen("0.0.0.0", int(port)))
        return host

    def name_server(self, address: str, **brokers: Mapping[int, str]) -> None:
        """A name server that lists these brokers."""
        listed = {name: BrokerData("C", name, dict(ids)) for name, ids in brokers.items()}
        self._lists(address, says(ClusterInfo(listed, {}).to_json()))

    def broken_name_server(self, address: str, reply: Reply) -> None:
        self._lists(address, reply)

    def _lists(self, address: str, reply: Reply) -> None:
        self.serve(address, RequestCode.GET_BROKER_CLUSTER_INFO, reply)

    def broker(self, address: str, reply: Reply = LOG) -> Host:
        return self.serve(address, RequestCode.GET_BROKER_RUNTIME_INFO, reply)

    def ask(self, work: Callable[[Channels], Coroutine[Any, Any, T]]) -> T:
        return self._asking.call(lambda: work(self.channels))

    def addresses(self, name: str = "broker-a") -> dict[int, str]:
        return self.ask(lambda channels: addresses_of(channels, NAMES, name))

    def liveness(self) -> BrokerLiveness:
        return self.ask(lambda channels: liveness_of(channels, OTHER))

    def start_master(self) -> None:
        """What a master does before it serves."""
        ours = config("10.0.0.1", namesrvAddr=";".join(NAMES))
        self.ask(lambda channels: refuse_second_master(channels, ours))


@pytest.fixture
def replicas(sim: Simulation) -> Replicas:
    return Replicas(sim)


# who is listed


def test_a_broker_counts_whichever_name_server_lists_it(replicas: Replicas) -> None:
    replicas.name_server(NAMES[0], **{"broker-a": {0: OURS}, "broker-b": {0: "10.0.0.5:10911"}})
    replicas.name_server(NAMES[1], **{"broker-a": {1: OTHER}})

    assert replicas.addresses() == {0: OURS, 1: OTHER}
    assert replicas.addresses("broker-c") == {}


@pytest.mark.parametrize("reply", [refuses(1, "no"), says(b"<html>"), says([]), lambda _: None])
def test_a_name_server_that_does_not_answer_well_lists_nobody(
    replicas: Replicas, reply: Reply
) -> None:
    replicas.broken_name_server(NAMES[0], reply)
    replicas.name_server(NAMES[1], **{"broker-a": {1: OTHER}})

    assert replicas.addresses() == {1: OTHER}


def test_name_servers_that_are_down_list_nobody(replicas: Replicas) -> None:
    assert replicas.addresses() == {}


# who lives


@pytest.mark.parametrize("reply", [LOG, refuses(1, "no")])
def test_a_broker_that_answers_lives_whatever_it_answers(replicas: Replicas, reply: Reply) -> None:
    replicas.broker(OTHER, reply)

    assert replicas.liveness() is BrokerLiveness.ANSWERS


def test_where_nothing_listens_the_broker_has_ended(replicas: Replicas) -> None:
    replicas.sim.host("10.0.0.2").boot()

    assert replicas.liveness() is BrokerLiveness.REFUSES


def test_a_broker_behind_a_broken_network_may_live(replicas: Replicas) -> None:
    replicas.broker(OTHER)
    replicas.sim.network.isolate("10.0.0.2")

    assert replicas.liveness() is BrokerLiveness.SILENT


def test_a_broker_that_takes_requests_and_does_not_answer_may_live(replicas: Replicas) -> None:
    replicas.broker(OTHER, lambda _: None)

    assert replicas.liveness() is BrokerLiveness.SILENT


def test_a_broker_whose_connection_ends_may_live(replicas: Replicas) -> None:
    host = replicas.broker(OTHER, lambda _: None)
    replicas.sim.loop.call_later(1, host.kill)

    assert replicas.liveness() is BrokerLiveness.SILENT


# one master of a name


def test_beside_a_master_that_answers_no_other_one_starts(replicas: Replicas) -> None:
    replicas.name_server(NAMES[1], **{"broker-a": {0: OTHER}})
    replicas.broker(OTHER)

    with pytest.raises(ConfigError, match=rf"{OTHER} is the master of broker-a, and answers"):
        replicas.start_master()


@pytest.mark.parametrize(
    "listed", [{}, {"broker-a": {1: OTHER}}, {"broker-b": {0: OTHER}}, {"broker-a": {0: OURS}}]
)
def test_a_master_starts_where_no_other_one_is_listed(
    replicas: Replicas, listed: dict[str, dict[int, str]]
) -> None:
    replicas.name_server(NAMES[0], **listed)
    replicas.broker(OTHER)
    replicas.broker(OURS)

    replicas.start_master()

    assert replicas.addresses() == listed.get("broker-a", {})


@pytest.mark.parametrize("is_up", [True, False])
def test_a_master_takes_the_place_of_one_that_does_not_answer(
    replicas: Replicas, *, is_up: bool
) -> None:
    """Its host may be up or not."""
    replicas.name_server(NAMES[0], **{"broker-a": {0: OTHER}})
    if is_up:
        replicas.sim.host("10.0.0.2").boot()

    replicas.start_master()

    assert replicas.liveness() is not BrokerLiveness.ANSWERS


# logs


def test_a_broker_says_where_its_log_begins_and_ends(replicas: Replicas) -> None:
    replicas.broker(OTHER)

    assert replicas.ask(lambda channels: log_range_of(channels, OTHER)) == LogRange(100, 900)


@pytest.mark.parametrize(
    ("reply", "error"), [(refuses(1, "no"), ResponseError), (says({"table": {}}), ValueError)]
)
def test_a_broker_that_does_not_say_is_an_error(
    replicas: Replicas, reply: Reply, error: type[Exception]
) -> None:
    replicas.broker(OTHER, reply)

    with pytest.raises(error):
        replicas.ask(lambda channels: log_range_of(channels, OTHER))
