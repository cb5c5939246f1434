"""What name servers learn of a broker, and a slave from them.

See docs/storage/replication.md#how-a-slave-finds-its-master,
docs/broker/topics.md#registration-is-always-whole and docs/protocol/name-server.md#registration.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.maintenance.registration import Registrar
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.server import NameServer
from roquet.protocol.bodies.tables import DataVersion, Route, TopicConfig, TopicTable, parse
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.server import Server
from roquet.transport.slices import Slices
from tests.simulation.simulation import Host, Simulation

MASTER, SLAVE, TOOL = "10.0.0.1", "10.0.0.2", "10.0.0.9"
NAME_SERVERS = ("10.0.1.1:9876", "10.0.1.2:9876")
ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}


class World:
    """Two name servers, and brokers with one topic that register with both."""

    def __init__(self, sim: Simulation, folder: Path) -> None:
        self.sim = sim
        self.folder = folder
        self.table = TopicTable({"T": TopicConfig("T", 4, 4)}, DataVersion(1, 1))
        self.masters: list[tuple[str | None, str | None]] = []
        self.ordered: list[frozenset[str]] = []
        self.tool = Channels()
        for address in NAME_SERVERS:
            self.start_name_server(address)

    def name_server(self, address: str) -> Host:
        return self.sim.host(address.partition(":")[0])

    def start_name_server(self, address: str) -> None:
        host = self.name_server(address)
        config = NamesrvConfig(kv_config_path=str(self.folder / host.address))
        host.call(lambda: NameServer(config, host.runtime()).start())

    def broker(
        self, address: str, broker_id: int = 0, *, permission: int = 6, compressed: bool = False
    ) -> Registrar:
        """A broker that registers from now on."""
        config = BrokerConfig(
            namesrv_addr=";".join(NAME_SERVERS),
            broker_cluster_name="c",
            broker_name="b",
            broker_id=broker_id,
            broker_ip1=address,
            broker_ip2=address,
            broker_permission=permission,
            compressed_register=compressed,
        )
        registrar = Registrar(
            config,
            Channels(),
            lambda: self.table,
            self.ordered.append,
            Slices(),
            (lambda ha, main: self.masters.append((ha, main))) if broker_id else None,
        )
        self.sim.host(address).start(registrar.run)
        return registrar

    def ask(self, address: str, code: int, **fields: str) -> Command:
        return self.sim.host(TOOL).call(
            lambda: self.tool.call(address, Command(code, fields), 3000)
        )

    def route(self, address: str) -> Route | None:
        answer = self.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        return parse(answer.body, Route.from_json) if answer.code == 0 else None

    def addresses(self, address: str = NAME_SERVERS[0]) -> dict[int, str]:
        route = self.route(address)
        return {} if route is None else dict(route.brokers[0].addresses)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Simulation("registration", seconds_max=100_000) as sim:
        yield World(sim, tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_name_server_knows_a_broker_as_soon_as_it_started(
    world: World, compressed: bool
) -> None:
    world.broker(MASTER, compressed=compressed)
    world.sim.run_for(1)
    for address in NAME_SERVERS:
        route = world.route(address)
        assert route is not None
        assert route.brokers[0].addresses == {0: f"{MASTER}:10911"}
        assert (route.queues[0].write_queues, route.queues[0].perm) == (4, 6)


def test_a_change_is_told_at_once(world: World) -> None:
    registrar = world.broker(MASTER)
    world.sim.run_for(20)
    world.table = TopicTable({"T": TopicConfig("T", 7, 7)}, DataVersion(1, 2))
    registrar.soon()
    world.sim.run_for(1)
    route = world.route(NAME_SERVERS[1])
    assert route is not None
    assert route.queues[0].write_queues == 7


def test_a_name_server_that_was_away_is_told_again_and_holds_up_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    away, other = NAME_SERVERS
    world.name_server(away).crash(silently=True)
    registrar = world.broker(MASTER)
    world.sim.run_for(1)
    assert world.addresses(other) == {0: f"{MASTER}:10911"}
    world.table = TopicTable({"T": TopicConfig("T", 7, 7)}, DataVersion(1, 2))
    registrar.soon()
    world.sim.run_for(1)
    route = world.route(other)
    assert route is not None
    assert route.queues[0].write_queues == 7
    world.sim.run_for(100)
    assert len([record for record in caplog.records if away in record.getMessage()]) == 1, (
        "logged once, not each time"
    )
    world.start_name_server(away)
    world.sim.run_for(31)
    assert world.addresses(away) == {0: f"{MASTER}:10911"}


def test_a_broker_is_known_as_long_as_it_runs(world: World) -> None:
    world.broker(MASTER)
    for _ in range(4):
        world.sim.run_for(119)
        assert world.addresses() == {0: f"{MASTER}:10911"}
    world.sim.host(MASTER).kill()
    world.sim.run_for(1)
    assert world.addresses() == {}


def test_a_broker_that_says_goodbye_is_forgotten(world: World) -> None:
    registrar = world.broker(MASTER)
    world.sim.run_for(1)
    world.sim.host(MASTER).call(registrar.unregister)
    assert world.addresses() == {}


def test_saying_goodbye_to_nobody_takes_its_time_but_ends(world: World) -> None:
    registrar = world.broker(MASTER)
    world.sim.run_for(1)
    for address in NAME_SERVERS:
        world.name_server(address).crash(silently=True)
    world.sim.host(MASTER).call(registrar.unregister)


def test_the_brokers_permission_is_that_of_all_its_topics(world: World) -> None:
    world.broker(MASTER, permission=4)
    world.sim.run_for(1)
    route = world.route(NAME_SERVERS[0])
    assert route is not None
    assert route.queues[0].perm == 4


def test_a_slave_learns_its_master_and_that_it_is_gone(world: World) -> None:
    world.broker(SLAVE, 1)
    world.sim.run_for(1)
    assert world.masters == []
    world.broker(MASTER)
    world.sim.run_for(41)
    assert world.masters == [(f"{MASTER}:10912", f"{MASTER}:10911")]
    world.sim.host(MASTER).kill()
    world.sim.run_for(31)
    assert world.masters[1:] == [(None, None)]


def test_a_slave_stays_with_its_master_while_one_name_server_knows_it(world: World) -> None:
    world.broker(MASTER)
    world.sim.run_for(1)
    world.broker(SLAVE, 1)
    world.sim.run_for(1)
    world.sim.network.isolate(NAME_SERVERS[0].partition(":")[0])
    world.sim.run_for(300)
    world.sim.network.heal(NAME_SERVERS[0].partition(":")[0])
    world.sim.run_for(300)
    assert world.masters == [(f"{MASTER}:10912", f"{MASTER}:10911")]


def test_a_dead_connection_to_a_name_server_is_replaced_before_that_forgets_the_broker(
    world: World,
) -> None:
    """Dead without a word: bytes vanish, nobody is told."""
    world.broker(MASTER)
    world.sim.run_for(1)
    world.sim.network.half_open(MASTER, NAME_SERVERS[0].partition(":")[0])
    for _ in range(30):
        world.sim.run_for(10)
        assert world.addresses() == {0: f"{MASTER}:10911"}


def test_a_broker_learns_which_topics_are_ordered(world: World) -> None:
    world.broker(MASTER)
    world.sim.run_for(1)
    assert world.ordered == []
    world.ask(NAME_SERVERS[0], RequestCode.PUT_KV_CONFIG, **ORDER)
    world.sim.run_for(31)
    assert set(world.ordered) == {frozenset({"T"})}


def test_a_name_server_that_answers_nonsense_is_asked_again_like_one_that_does_not_answer(
    world: World,
) -> None:
    host = world.name_server(NAME_SERVERS[0])
    host.crash()
    asked: list[Command] = []

    def answer(request: Command, connection: Connection) -> Command:
        asked.append(request)
        return request.answer(0, body=b"{")

    server = Server({RequestCode.REGISTER_BROKER: answer})
    host.call(lambda: server.listen("0.0.0.0", 9876))
    world.broker(MASTER)
    world.sim.run_for(45)
    assert len(asked) == 3
    assert asked[0].body == asked[2].body
    assert world.addresses(NAME_SERVERS[1]) == {0: f"{MASTER}:10911"}
