"""A slave that an operator makes the master: what speaks against it, and what becomes of the
cluster.
"""

from __future__ import annotations

import pytest

from roquet.broker.config.store import BrokerRole
from roquet.broker.server import Broker
from roquet.errors import ConfigError
from roquet.protocol.bodies.ha_status import HaStatus
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import NameServerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import bodies_in

MASTER, SLAVE, OTHER, NAMES = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.7"


class Couple:
    """A SYNC_MASTER and its slave, which has all it was sent; clients of both."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.names = NameServerNode(sim.host(NAMES))
        self.names.start()
        sim.run_until(lambda: self.names.is_serving, 10)
        known = {"namesrvAddr": f"{NAMES}:9876"}
        self.master = started(sim, MASTER, brokerRole="SYNC_MASTER", **known)
        self.slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, **known)
        self.to_master = Client(sim, sim.host("10.0.0.9"))
        self.to_slave = Client(sim, sim.host("10.0.0.8"), f"{SLAVE}:10911")
        sim.run_for(15)
        for number in range(5):
            assert send(self.to_master, b"%d" % number).code == ResponseCode.SUCCESS

    def promote(self, **header: object) -> Command:
        return self.to_slave.call(RequestCode.PROMOTE_SLAVE, **{"role": "SYNC_MASTER", **header})

    def refused(self, **header: object) -> str:
        answer = self.promote(**header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert serving(self.slave).config.is_slave
        return str(answer.remark)

    def let_the_slave_stop_to_follow(self) -> None:
        follower = serving(self.slave).parts.follower
        assert follower is not None

        async def stop() -> None:
            follower.stop_copying_log()

        self.slave.host.call(stop)
        self.sim.run_for(0.1)

    def run_until_promoted(self) -> None:
        self.sim.run_until(lambda: self.slave.broker is not None and not self.slave.is_slave, 10)


@pytest.fixture
def couple(sim: Simulation) -> Couple:
    return Couple(sim)


def test_a_slave_takes_the_place_of_a_master_that_is_gone(sim: Simulation, couple: Couple) -> None:
    end = serving(couple.master).store.log.end
    couple.master.host.kill()
    sim.run_for(1)
    assert couple.promote(role="ASYNC_MASTER").code == ResponseCode.SUCCESS
    couple.run_until_promoted()
    new = serving(couple.slave)
    assert (new.config.broker_id, new.config.replication.broker_role) == (
        0,
        BrokerRole.ASYNC_MASTER,
    )
    assert new.store.log.end == end
    assert send(couple.to_slave, b"5").code == ResponseCode.SUCCESS
    assert new.store.max_offset("T", 0) == 6
    sim.run_for(1)
    known = couple.to_slave.host.call(
        lambda: couple.to_slave.channels.call(
            f"{NAMES}:9876", Command(RequestCode.GET_BROKER_CLUSTER_INFO), 3000
        )
    )
    assert f'"brokerAddrs":{{0:"{SLAVE}:10911"}}' in known.body.decode()


def test_the_old_master_does_not_start_beside_the_new_one_but_follows_it(
    sim: Simulation, couple: Couple
) -> None:
    couple.master.host.kill()
    sim.run_for(1)
    couple.promote()
    couple.run_until_promoted()
    sim.run_for(1)
    host = couple.master.host
    host.boot()
    with pytest.raises(ConfigError, match=rf"{SLAVE}:10911 is the master of broker-a, and answers"):
        host.call(Broker(couple.master.config, host.runtime(), host.disk).start)
    host.kill()
    again = started(sim, MASTER, brokerRole="SLAVE", brokerId=1, namesrvAddr=f"{NAMES}:9876")
    send(couple.to_slave, b"5")
    sim.run_until(lambda: again.follows(serving(couple.slave)), 60)


def test_a_living_master_is_never_passed_over(couple: Couple) -> None:
    for says in {}, {"fenced": "true", "forced": "true"}:
        assert couple.refused(**says) == f"the master at {MASTER}:10911 answers: stop it first"


def test_a_master_that_cannot_be_reached_may_live(sim: Simulation, couple: Couple) -> None:
    sim.network.isolate(MASTER)
    assert "cannot be reached, but may live on elsewhere" in couple.refused()
    assert couple.promote(fenced="true").code == ResponseCode.SUCCESS


def test_a_slave_that_lacks_what_its_master_had_is_no_master(
    sim: Simulation, couple: Couple
) -> None:
    """The master took messages that nobody else has, and a look at it was still possible: it is
    known what is lost.
    """
    couple.let_the_slave_stop_to_follow()
    for number in range(3):
        assert send(couple.to_master, b"more-%d" % number).code == ResponseCode.SLAVE_NOT_AVAILABLE
    missing = serving(couple.master).store.log.end - serving(couple.slave).store.log.end
    sim.run_for(11)
    couple.master.host.kill()
    sim.run_for(1)
    assert f"{missing} bytes are missing here" in couple.refused()
    assert couple.promote(forced="true").code == ResponseCode.SUCCESS


def test_a_topic_that_was_made_too_late_to_be_copied_is_there(
    sim: Simulation, couple: Couple
) -> None:
    """The slave gets its first message, and cannot ask for the topic any more."""
    follower = serving(couple.slave).parts.follower
    assert follower is not None
    follower.sync.set_master(None)
    assert send(couple.to_master, b"late", "Late").code == ResponseCode.SUCCESS
    couple.master.host.kill()
    sim.run_for(1)
    assert couple.promote().code == ResponseCode.SUCCESS
    couple.run_until_promoted()
    topic = serving(couple.slave).parts.tables.topics.topics["Late"]
    assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)


def test_a_topic_that_is_new_is_copied_at_once(sim: Simulation, couple: Couple) -> None:
    assert send(couple.to_master, b"new", "New").code == ResponseCode.SUCCESS
    sim.run_for(0.5)
    assert (
        serving(couple.slave).parts.tables.topics.topics["New"]
        == serving(couple.master).parts.tables.topics.topics["New"]
    )


def test_of_two_slaves_the_one_that_has_more_is_to_be_promoted(
    sim: Simulation, couple: Couple
) -> None:
    other = started(sim, OTHER, brokerRole="SLAVE", brokerId=2, namesrvAddr=f"{NAMES}:9876")
    sim.run_until(lambda: serving(other).store.log.end > 0, 60)
    sim.run_for(12)
    couple.let_the_slave_stop_to_follow()
    send(couple.to_master, b"not for slave 1")
    sim.run_for(1)
    missing = serving(other).store.log.end - serving(couple.slave).store.log.end
    couple.master.host.kill()
    sim.run_for(1)
    assert (
        couple.refused() == f"slave 2 at {OTHER}:10911 has {missing} bytes more: promote that one"
    )
    other.host.kill()
    sim.network.partition(SLAVE, OTHER)
    sim.run_for(0.1)
    assert couple.promote(forced="true").code == ResponseCode.SUCCESS


def test_without_a_name_server_it_is_not_known_what_other_slaves_have(
    sim: Simulation, couple: Couple
) -> None:
    """Found by the simulation: acknowledged messages that only another slave had were lost."""
    for host in (couple.names.host, couple.master.host):
        host.kill()
    sim.run_for(1)
    assert (
        couple.refused() == "no name server lists this slave: what other slaves have is not known"
    )
    couple.names.start()
    sim.run_for(31)
    assert couple.promote().code == ResponseCode.SUCCESS


def test_who_has_not_heard_of_the_master_does_not_know_what_is_missing(sim: Simulation) -> None:
    started(sim, SLAVE, brokerRole="SLAVE", brokerId=1)
    client = Client(sim, sim.host("10.0.0.8"), f"{SLAVE}:10911")
    answer = client.call(RequestCode.PROMOTE_SLAVE, role="SYNC_MASTER")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the address of the master is not known" in str(answer.remark)
    assert "what is missing is not known" in str(answer.remark)


@pytest.mark.parametrize(
    ("role", "remark"),
    [
        ("SLAVE", "role 'SLAVE': allowed are SYNC_MASTER and ASYNC_MASTER"),
        ("SYNC_MASTER", "is the master of broker-a"),
    ],
)
def test_a_master_cannot_be_promoted_nor_can_anybody_to_a_slave(
    sim: Simulation, role: str, remark: str
) -> None:
    started(sim, MASTER)
    answer = Client(sim, sim.host("10.0.0.8")).call(RequestCode.PROMOTE_SLAVE, role=role)
    assert (answer.code, remark in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


def half_pack(couple: Couple) -> int:
    """Leave in the master's log, and so in the slave's, what a version did that took the place for
    a record before a field of it did not fit; where that is."""
    store = serving(couple.master).store
    record = store.log.record_at(last_record_at(store))
    assert record is not None

    async def write() -> int:
        at = store.log.make_room(len(record))
        store.log.write(record[:16].ljust(len(record), b"\0"))
        store.dispatch.position = store.log.end
        serving(couple.master).parts.append_notifier.turn_ended()
        return at

    at = couple.master.host.call(write)
    couple.sim.run_for(1)
    return at


def last_record_at(store: Store) -> int:
    entry = store.queue("T", 0).entry(store.max_offset("T", 0) - 1)
    assert entry is not None
    return entry[0]


def bodies(store: Store) -> list[bytes]:
    return bodies_in(store, "T")


def test_a_hole_in_the_log_costs_a_promoted_slave_nothing_behind_it(
    sim: Simulation, couple: Couple
) -> None:
    half_pack(couple)
    for number in range(5, 25):
        assert send(couple.to_master, b"%d" % number).code == ResponseCode.SUCCESS
    sim.run_for(0.5)
    slave = serving(couple.slave).store
    assert bodies(slave) == [b"%d" % number for number in range(25)]
    assert (slave.dispatch.lag, slave.dispatch.holes) == (0, 1)
    couple.master.host.kill()
    sim.run_for(1)
    assert couple.promote().code == ResponseCode.SUCCESS
    couple.run_until_promoted()
    assert bodies(serving(couple.slave).store) == [b"%d" % number for number in range(25)]


def test_a_crash_of_a_master_with_a_hole_costs_nothing_that_was_acknowledged(
    sim: Simulation, couple: Couple
) -> None:
    half_pack(couple)
    for number in range(5, 25):
        assert send(couple.to_master, b"%d" % number).code == ResponseCode.SUCCESS
    couple.master.host.kill()
    couple.master.host.boot()
    couple.master.start()
    sim.run_until(lambda: couple.master.broker is not None, 30)
    assert bodies(serving(couple.master).store) == [b"%d" % number for number in range(25)]
    assert send(couple.to_master, b"25").code in (
        ResponseCode.SUCCESS,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
    sim.run_until(lambda: couple.slave.follows(serving(couple.master)), 60)


def test_a_slave_whose_dispatch_has_stopped_says_so_and_is_no_master(
    sim: Simulation, couple: Couple, caplog: pytest.LogCaptureFixture
) -> None:
    at = half_pack(couple)
    sim.run_for(11)
    told = [
        text for record in caplog.records if "dispatch stopped" in (text := record.getMessage())
    ]
    assert len(told) == 1
    couple.master.host.kill()
    sim.run_for(1)
    reason = f"the record at physical offset {at} is damaged"
    assert reason in couple.refused()
    status = HaStatus.from_json(load(couple.to_slave.call(RequestCode.GET_BROKER_HA_STATUS).body))
    assert reason in status.trouble
    info = load(couple.to_slave.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert reason in info["dispatchBehindReason"]
    assert couple.promote(forced="true").code == ResponseCode.SUCCESS
    couple.run_until_promoted()
    new = serving(couple.slave).store
    assert (bodies(new), new.log.end, new.remark) == (
        [b"%d" % number for number in range(5)],
        at,
        "",
    )
    assert [path for path in couple.slave.host.drive.names.files if "lost" in path.parts]
