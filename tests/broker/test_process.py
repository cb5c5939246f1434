"""A broker is replaced by one with another role: once, not while it stops, and not unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole
from roquet.broker.process import BrokerProcess
from roquet.broker.server import Broker
from roquet.errors import CannotListen, ConnectionClosed
from roquet.protocol.remoting.codes import ResponseCode
from roquet.transport.server import Server
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import config, send
from tests.simulation.simulation import Simulation

OTHER_PORT: Final = 20911


class Slave:
    """A slave's process, whose broker may be told to become a master; a client of it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.host = sim.host(ADDRESS)
        self.host.boot()
        self.failures = 0
        slave = config(ADDRESS, brokerRole="SLAVE", brokerId=1)
        self.process = BrokerProcess(slave, self.host.runtime(), self._failed, self.host.disk)
        self.host.call(self.process.start)
        self.first = self.serving
        self.client = Client(sim, sim.host("10.0.0.9"))

    def _failed(self) -> None:
        self.failures += 1

    @property
    def serving(self) -> Broker:
        assert self.process.broker is not None
        return self.process.broker

    def become(self, *configs: BrokerConfig) -> None:
        """Let the first broker ask for these configurations, one after the other, in one turn."""
        restart_as = self.first.restart_as
        assert restart_as is not None

        async def ask() -> None:
            for each in configs:
                restart_as(each)

        self.host.call(ask)

    def master(self, role: BrokerRole = BrokerRole.ASYNC_MASTER, **changes: object) -> BrokerConfig:
        """The slave's configuration as that of a master."""
        before = self.first.config
        replication = replace(before.replication, broker_role=role)
        return replace(before, broker_id=0, replication=replication, **changes)  # type: ignore[arg-type]

    def run_until(self, condition: Callable[[], bool]) -> None:
        self.sim.run_until(condition, 30)


@pytest.fixture
def slave(sim: Simulation) -> Slave:
    return Slave(sim)


def test_a_process_serves_with_one_broker(slave: Slave) -> None:
    process = slave.process

    assert (process.port, process.address) == (10911, f"{ADDRESS}:10911")
    assert process.config is slave.first.config
    assert not process.is_changing
    assert process.ports == (10911, 10909), "a slave has no port for slaves"


def test_a_broker_is_replaced_by_one_with_the_new_role(slave: Slave) -> None:
    process = slave.process
    slave.become(slave.master())
    assert (process.broker, process.is_changing) == (None, True)

    slave.run_until(lambda: process.broker is not None)

    assert slave.serving is not slave.first
    assert not process.is_changing
    assert (process.config.broker_id, process.config.is_slave) == (0, False)
    assert process.ports == (10911, 10909, 10912)
    assert send(slave.client, b"body").code == ResponseCode.SUCCESS


def test_a_broker_that_is_being_replaced_is_replaced_once(slave: Slave) -> None:
    slave.become(slave.master(BrokerRole.ASYNC_MASTER), slave.master(BrokerRole.SYNC_MASTER))

    slave.run_until(lambda: slave.process.broker is not None)

    assert slave.serving.config.replication.broker_role is BrokerRole.ASYNC_MASTER
    slave.sim.run_for(10)
    assert send(slave.client, b"body").code == ResponseCode.SUCCESS


def test_a_broker_that_is_stopping_is_not_replaced(slave: Slave) -> None:
    """It stops once, and no broker is started that nobody would stop."""
    restart_as = slave.first.restart_as
    assert restart_as is not None

    async def stop_and_become() -> None:
        stopping = asyncio.create_task(slave.process.stop())
        await asyncio.sleep(0)
        restart_as(slave.master())
        await stopping

    slave.host.call(stop_and_become)
    slave.sim.run_for(10)

    assert slave.process.broker is slave.first
    assert not slave.process.is_changing
    assert slave.process.config.broker_id == 1


def test_a_stop_ends_the_broker_that_is_just_starting(slave: Slave) -> None:
    slave.become(slave.master())

    slave.host.call(slave.process.stop)

    assert slave.serving is not slave.first
    with pytest.raises(ConnectionClosed):
        send(slave.client, b"body")


def test_a_broker_that_cannot_be_started_again_is_told_of(
    slave: Slave, caplog: pytest.LogCaptureFixture
) -> None:
    slave.host.call(lambda: Server({}).listen("0.0.0.0", OTHER_PORT))

    slave.become(slave.master(listen_port=OTHER_PORT))
    slave.run_until(lambda: slave.failures > 0)

    assert slave.failures == 1
    assert slave.process.is_changing, "no broker serves"
    assert "could not be restarted with its new role: role=ASYNC_MASTER" in caplog.text
    with pytest.raises(CannotListen, match=str(OTHER_PORT)):
        slave.host.call(slave.process.stop)
