"""A slave's copy of its master's tables.

See docs/storage/replication.md#copying-tables and
docs/protocol/administration.md#what-a-slave-copies.
"""

from __future__ import annotations

import pytest

from roquet.broker.ha.slave_sync import SlaveSync
from roquet.broker.metadata.state_files import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS
from roquet.broker.tables import Tables
from roquet.protocol.bodies.tables import DelayOffsetTable, GroupConfig, OffsetTable, TopicConfig
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.server import Server
from roquet.transport.slices import Slices
from tests.broker.harness import ADDRESS, World
from tests.broker.served import config
from tests.simulation.simulation import Simulation


class Slave:
    """The tables of a slave beside a master's world."""

    def __init__(self, world: World, *, remembers: bool = True) -> None:
        self.world = world
        self.host = world.sim.host("10.0.0.2")
        self.host.boot()
        settings = config(
            self.host.address,
            brokerRole="SLAVE",
            brokerId=1,
            mergeSlaveOffsets=str(remembers).lower(),
        )
        self._folder = settings.state_folder
        tables = Tables(settings, self.host.runtime(), self.host.disk)
        self.topics = tables.topics
        self.groups = tables.groups
        self.offsets = tables.offsets
        self.delays = tables.delay_offsets
        self.sync = SlaveSync(Channels(), world.store.log, tables, Slices())

    def take_saved(self) -> set[str]:
        """The state files that were saved since the last call."""
        names = {name for name, _ in self.host.disk.names(self._folder)}
        for name in names:
            self.host.disk.delete(self._folder / name)
        return names

    def start(self) -> None:
        self.sync.set_master(f"{ADDRESS}:10911")
        self.host.start(self.sync.run)


@pytest.fixture
def slave(world: World) -> Slave:
    """A slave of a master that has something in each of its tables, and listens on its fast port,
    too.
    """
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 2, 2)))
    world.on_broker(lambda: world.groups.update(GroupConfig("g", retry_max_times=3)))
    world.offsets.commit("g", "T", 0, 5)
    world.delays.restore(DelayOffsetTable({2: 7}))
    fast = Server(world.handlers)
    world.host.call(lambda: fast.listen("0.0.0.0", world.config.fast_port))
    return Slave(world)


def test_a_slave_has_its_masters_tables_as_soon_as_it_knows_its_master(slave: Slave) -> None:
    slave.start()
    slave.world.sim.run_for(0.5)
    assert slave.topics.to_table() == slave.world.topics.to_table()
    assert slave.groups.to_table() == slave.world.groups.to_table()
    assert slave.offsets.to_table() == slave.world.offsets.to_table()
    assert slave.delays.to_table() == slave.world.delays.to_table()
    assert slave.take_saved() == {TOPICS, CONSUMER_OFFSETS, GROUPS, DELAY_OFFSETS}


def test_tables_are_copied_at_once_when_they_are_wanted(slave: Slave) -> None:
    slave.start()
    slave.world.sim.run_for(0.5)
    slave.world.offsets.commit("g", "T", 0, 6)
    slave.sync.soon()
    slave.world.sim.run_for(0.5)
    assert slave.offsets.committed("g", "T", 0) == 6


def test_what_did_not_change_is_not_saved_again(slave: Slave) -> None:
    slave.start()
    slave.world.sim.run_for(3.5)
    assert slave.take_saved()
    slave.world.sim.run_for(30)
    assert slave.take_saved() == set()
    slave.world.offsets.commit("g", "T", 0, 6)
    slave.world.sim.run_for(10)
    assert slave.take_saved() == {CONSUMER_OFFSETS}
    assert slave.offsets.committed("g", "T", 0) == 6


def test_the_masters_word_replaces_what_was_committed_on_the_slave(slave: Slave) -> None:
    slave.offsets.restore(OffsetTable({"T@g": {0: 99, 1: 3}, "T@own": {0: 4}}))
    slave.start()
    slave.world.sim.run_for(3.5)
    assert slave.offsets.to_table().offsets == {"T@g": {0: 5}, "T@own": {0: 4}}


def test_what_was_committed_on_the_slave_and_goes_further_comes_to_the_master(slave: Slave) -> None:
    """And what does not go further never sets the master back."""
    for queue_id, offset in ((0, 8), (1, 3)):
        slave.offsets.commit("g", "T", queue_id, offset)
    slave.offsets.commit("new", "T", 0, 2)
    slave.world.offsets.commit("g", "T", 1, 4)
    slave.start()
    slave.world.sim.run_for(1)
    expected = {"T@g": {0: 8, 1: 4}, "T@new": {0: 2}}
    assert slave.world.offsets.to_table().offsets == expected
    assert slave.offsets.to_table().offsets == expected


def test_what_was_committed_on_the_slave_sets_no_group_back_that_has_come_further_since(
    slave: Slave,
) -> None:
    """Between the copy of the master's table and the slave's word."""
    slave.offsets.commit("g", "T", 0, 8)
    handlers = slave.world.handlers
    table = handlers[RequestCode.GET_ALL_CONSUMER_OFFSET]

    def table_then_progress(request: Command, connection: Connection) -> Command | None:
        answer: Command = table(request, connection)
        slave.world.offsets.commit("g", "T", 0, 20)
        return answer

    handlers[RequestCode.GET_ALL_CONSUMER_OFFSET] = table_then_progress
    slave.start()
    slave.world.sim.run_for(1)
    assert slave.world.offsets.committed("g", "T", 0) == 20


def test_what_the_master_was_told_is_the_masters_from_then_on(slave: Slave) -> None:
    """An operator may set the group back there, also before the slave has copied the master's table
    again.
    """
    slave.offsets.commit("g", "T", 0, 8)
    slave.start()
    slave.world.sim.run_for(1)
    assert slave.world.offsets.committed("g", "T", 0) == 8
    slave.world.offsets.commit("g", "T", 0, 2)
    slave.world.sim.run_for(15)
    assert slave.world.offsets.committed("g", "T", 0) == slave.offsets.committed("g", "T", 0) == 2


def test_an_offset_that_the_master_could_not_be_told_is_told_later(slave: Slave) -> None:
    slave.offsets.commit("g", "T", 0, 8)
    handlers = slave.world.handlers
    update = handlers.pop(RequestCode.UPDATE_CONSUMER_OFFSET)
    slave.start()
    slave.world.sim.run_for(1)
    assert (slave.world.offsets.committed("g", "T", 0), slave.offsets.committed("g", "T", 0)) == (
        5,
        8,
    )
    handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
    slave.world.sim.run_for(11)
    assert slave.world.offsets.committed("g", "T", 0) == 8


def test_a_slave_may_forget_what_was_committed_there_as_apaches_does(world: World) -> None:
    world.offsets.commit("g", "T", 0, 5)
    slave = Slave(world, remembers=False)
    slave.offsets.commit("g", "T", 0, 8)
    slave.start()
    slave.world.sim.run_for(1)
    assert world.offsets.committed("g", "T", 0) == slave.offsets.committed("g", "T", 0) == 5


def test_without_a_master_a_slave_keeps_what_it_has(slave: Slave) -> None:
    slave.start()
    slave.world.sim.run_for(3.5)
    before = slave.topics.to_table()
    slave.sync.set_master(None)
    slave.world.on_broker(lambda: slave.world.topics.delete("T"))
    slave.world.sim.run_for(30)
    assert slave.topics.to_table() == before


def test_a_table_that_cannot_be_had_leaves_the_others_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.offsets.commit("g", "T", 0, 5)
    slave = Slave(world)
    slave.start()
    slave.world.sim.run_for(60)
    assert slave.offsets.committed("g", "T", 0) == 5
    failures = [
        record.getMessage()
        for record in caplog.records
        if "GET_ALL_TOPIC_CONFIG" in record.getMessage()
    ]
    assert len(failures) == 1, "no fast port: logged once, not each time"


def test_an_answer_that_is_no_table_changes_nothing(sim: Simulation, world: World) -> None:
    slave = Slave(world)
    nonsense = Server(
        dict.fromkeys(
            world.handlers,
            lambda request, connection: request.answer(0, body=b'{"offsetTable":[]}'),
        )
    )
    world.host.call(lambda: nonsense.listen("0.0.0.0", 20911))
    world.host.call(lambda: nonsense.listen("0.0.0.0", 20909))
    slave.sync.set_master(f"{ADDRESS}:20911")
    before = slave.offsets.to_table()
    slave.host.call(slave.sync.copy)
    assert slave.offsets.to_table() == before
