"""The hosts of a cluster, and everything that can be done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole, FlushDisk
from roquet.broker.server import Broker
from tests.simulation.broker_set import BrokerSet
from tests.simulation.clients import ConsumerNode, ProducerNode
from tests.simulation.disk import DriveSpeed
from tests.simulation.network import LinkQuality
from tests.simulation.nodes import (
    NAME_SERVER_PORT,
    BrokerNode,
    NameServerNode,
    drawn_config,
    with_role,
)
from tests.simulation.simulation import Host, Simulation

NAME_SERVER: Final = "name-server"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
MASTER_ROLES: Final = {
    "sync-master": BrokerRole.SYNC_MASTER,
    "async-master": BrokerRole.ASYNC_MASTER,
}
START_S_MAX: Final = 60.0
HEALTHY_DRIVE: Final = DriveSpeed()
HEALTHY_LINK: Final = LinkQuality()
SET_LETTERS: Final = "abc"


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


class ClusterHosts:
    """Masters and their slaves, name servers, a producer and the members of a group, each on a host of its own.

    :param names: `sync-master` or `async-master` first, then slaves by any name, in the order of their broker ids.
    :param consumers: how many members the group has: `consumer`, `consumer-2` ...
    :param sets: how many broker names there are, with a master and slaves each; those of the second one are called
        `sync-master-b`, `slave-b` ...
    :param name_servers: how many there are: `name-server`, `name-server-2` ...
    """

    def __init__(
        self,
        seed: int,
        names: Sequence[str],
        flush: FlushDisk,
        consumers: int,
        sets: int = 1,
        name_servers: int = 1,
    ) -> None:
        self.sim = Simulation(seed)
        self.chance = self.sim.chance("cluster")
        self.name_servers = {
            _numbered(NAME_SERVER, number): NameServerNode(self.sim.host(f"10.0.0.{number}"))
            for number in range(1, name_servers + 1)
        }
        server = ";".join(
            f"{node.host.address}:{NAME_SERVER_PORT}" for node in self.name_servers.values()
        )
        config = drawn_config(self.chance, server)
        self.sets = [
            BrokerSet(self, self._make_brokers(names, number, config, flush))
            for number in range(sets)
        ]
        self.brokers = {name: node for each in self.sets for name, node in each.brokers.items()}
        self.producer = ProducerNode(self.sim.host("10.0.2.1"), server)
        self.consumers = {
            _numbered(CONSUMER, number): ConsumerNode(self.sim.host(f"10.0.3.{number}"), server)
            for number in range(1, consumers + 1)
        }
        self.words_may_come_late = consumers > 1
        """Whether something was done to the network, or to a consumer, after which old packets may
        still arrive.
        """
        self.wiped: list[str] = []
        """The slaves whose stores were deleted."""
        self.began_anew: set[str] = set()
        """The slaves that may lack what is older than their master's last file: wiped ones, and
        those whose power failed, maybe before anything of their log was on the drive."""

    def _make_brokers(
        self, names: Sequence[str], number: int, config: BrokerConfig, flush: FlushDisk
    ) -> list[BrokerNode]:
        """Those of one broker name."""
        letter = SET_LETTERS[number]
        config = replace(config, broker_name=f"broker-{letter}")
        nodes = []
        for broker_id, name in enumerate(names):
            address = f"10.0.{1 + 10 * number}.{broker_id + 1}"
            role = MASTER_ROLES.get(name, BrokerRole.SLAVE)
            assert (broker_id == 0) == (role is not BrokerRole.SLAVE), "one master, first of all"
            called = name if number == 0 else f"{name}-{letter}"
            nodes.append(
                BrokerNode(
                    called,
                    self.sim.host(address),
                    with_role(config, role, broker_id, address, flush),
                )
            )
        return nodes

    # who is who

    @property
    def name_server(self) -> NameServerNode:
        """The first one."""
        return self.name_servers[NAME_SERVER]

    @property
    def _nodes(self) -> list[BrokerNode]:
        return list(self.brokers.values())

    @property
    def master(self) -> BrokerNode:
        """Of the first broker name; the one that was promoted last."""
        return self.sets[0].master

    @property
    def slaves(self) -> list[BrokerNode]:
        """Of the first broker name: who follows the master, or is going to."""
        return self.sets[0].slaves

    def set_of(self, name: str) -> BrokerSet:
        """To which a broker belongs."""
        return next(each for each in self.sets if name in each.brokers)

    def some_set(self) -> BrokerSet:
        """Only where there are several this is a draw: kept seeds tell of histories with one."""
        return self.sets[0] if len(self.sets) == 1 else self.chance.choice(self.sets)

    def some_name_server(self) -> str:
        names = list(self.name_servers)
        return names[0] if len(names) == 1 else self.chance.choice(names)

    def look_at_roles(self) -> None:
        """Slaves that have become masters are the masters from now on."""
        for each in self.sets:
            each.look_at_roles()

    def received(self) -> set[str]:
        """The keys of all messages that the group got."""
        return {key for consumer in self.consumers.values() for key in consumer.received}

    def broker(self, name: str) -> Broker:
        """The broker that serves under this name."""
        broker = self.brokers[name].broker
        assert broker is not None, f"{name} does not serve"
        return broker

    def host(self, name: str) -> Host:
        if name in self.brokers:
            return self.brokers[name].host
        if name in self.consumers:
            return self.consumers[name].host
        return self.producer.host if name == PRODUCER else self.name_servers[name].host

    @property
    def names(self) -> list[str]:
        """Every host there is."""
        return [*self.name_servers, *self.brokers, PRODUCER, *self.consumers]

    # faults

    def run_for(self, seconds: float) -> None:
        self.sim.run_for(seconds)

    def run_for_up_to(self, seconds: float) -> None:
        """Stop at a moment that only the seed knows."""
        self.run_for(self.chance.uniform(0, seconds))

    def crash(self, name: str, silently: bool = False) -> None:
        """The power fails: what was never synced is gone."""
        self._may_begin_anew(name)
        self.host(name).crash(silently)

    def _may_begin_anew(self, name: str) -> None:
        if name in self.brokers and name != self.set_of(name).master.name:
            self.began_anew.add(name)

    def lose_power_soon(self, name: str, changes_max: int = 40) -> None:
        """The power fails at one of the next changes to the drive, in the middle of whatever is
        going on then.
        """
        self._may_begin_anew(name)
        self.host(name).drive.lose_power_after(self.chance.randrange(changes_max))

    def lose_power_by_now(self, name: str) -> None:
        """After `lose_power_soon`: if it has not happened yet, it happens now."""
        if self.host(name).is_running:
            self.crash(name)

    def kill(self, name: str) -> None:
        """The process dies, its files keep what was written."""
        self.words_may_come_late |= name in self.consumers
        self.host(name).kill()

    def stop(self, name: str) -> None:
        """The broker ends in an orderly way."""
        self.brokers[name].stop()

    def wipe(self, name: str) -> None:
        """End a slave and delete its store."""
        self.brokers[name].wipe()
        self.wiped.append(name)
        self.began_anew.add(name)

    def start(self, name: str) -> None:
        """Start what is down."""
        if name in self.name_servers:
            self.name_servers[name].start()
        elif name in self.consumers:
            self.consumers[name].start()
        else:
            self.brokers[name].start()

    def restart(self, name: str) -> None:
        """Start what is down and wait until it serves."""
        self.start(name)
        self.wait_until_serving(name)

    def wait_until_serving(self, name: str) -> None:
        if name in self.name_servers:
            self.sim.run_until(lambda: self.name_servers[name].is_serving, START_S_MAX)
        elif name in self.brokers:
            self.sim.run_until(lambda: self.brokers[name].broker is not None, START_S_MAX)

    def cut(self, a: str, b: str) -> None:
        """Reset every connection between two hosts."""
        self.words_may_come_late = True
        self.sim.network.cut(self.host(a).address, self.host(b).address)

    def half_open(self, a: str, b: str) -> None:
        """The connections between two hosts lose everything from now on, and tell nobody."""
        self.words_may_come_late = True
        self.sim.network.half_open(self.host(a).address, self.host(b).address)

    def partition(self, a: str, b: str, one_way: bool = False) -> None:
        """Nothing gets from `a` to `b`, nor back unless `one_way`."""
        self.words_may_come_late = True
        self.sim.network.partition(self.host(a).address, self.host(b).address, one_way)

    def isolate(self, name: str) -> None:
        """Nothing gets to this host or away from it."""
        self.words_may_come_late = True
        self.sim.network.isolate(self.host(name).address)

    def slow_down(self, quality: LinkQuality) -> None:
        """The whole network is like this from now on."""
        self.words_may_come_late = True
        self.sim.network.quality = quality

    def break_drive(self, name: str, failure: int) -> None:
        """A host's drive refuses from now on what it refuses with this error number."""
        self._may_begin_anew(name)
        self.host(name).drive.failure = failure

    def heal(self) -> None:
        """The network and the drives are well again."""
        self.sim.network.quality = HEALTHY_LINK
        self.sim.network.heal()
        for node in self._nodes:
            node.host.drive.speed = HEALTHY_DRIVE
            node.host.drive.failure = node.host.drive.flaky = None
