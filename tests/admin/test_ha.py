"""Replicas are asked for their state all at once; a slave is promoted and waited for."""

from __future__ import annotations

from typing import Final

import pytest

from roquet.admin import ha
from roquet.admin.cluster import AdminClient
from roquet.admin.ha import Replica, Replicas, all_replicas, promote
from roquet.common.loop_time import now_s
from roquet.errors import CallTimeout, ConnectionClosed, ResponseError
from roquet.protocol.bodies.ha_status import FollowerStatus, HaStatus, SlaveStatus
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.handling import Answer
from tests.admin.scripted import Reply, ScriptedCluster, refuses, says

MASTER: Final = "10.0.1.1:10911"
SLAVE: Final = "10.0.1.2:10911"
MASTERS_STATUS: Final = HaStatus(900, (SlaveStatus(SLAVE, acked=700, behind=200),))
SLAVES_STATUS: Final = HaStatus(700, (), FollowerStatus(MASTER, end=700, is_active=True))
UNSUPPORTED: Final = refuses(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")


def log(start: int, end: int) -> Reply:
    return says({"table": {"commitLogMinOffset": str(start), "commitLogMaxOffset": str(end)}})


def replies(start: int, end: int, status: HaStatus) -> dict[int, Reply]:
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: log(start, end),
        RequestCode.GET_BROKER_HA_STATUS: says(status.to_json()),
    }


def replica(broker_id: int, end: int | None) -> Replica:
    return Replica("b", broker_id, f"10.0.1.{broker_id}:10911", 0, end, None)


# replicas


def test_master_and_slaves_say_where_their_logs_end(scripted: ScriptedCluster) -> None:
    scripted.broker(SLAVE, replies(100, 700, SLAVES_STATUS), broker_id=1)
    scripted.broker(MASTER, replies(100, 900, MASTERS_STATUS))

    (replicas,) = scripted.ask(all_replicas)

    master = Replica("b", 0, MASTER, 100, 900, MASTERS_STATUS)
    slave = Replica("b", 1, SLAVE, 100, 700, SLAVES_STATUS)
    assert replicas == Replicas("b", (master, slave))
    assert replicas.master == master
    assert [replicas.lag(each) for each in replicas.members] == [0, 200]


def test_broker_names_are_sorted_and_may_be_chosen(scripted: ScriptedCluster) -> None:
    scripted.broker("10.0.1.3:10911", replies(0, 1, HaStatus()), name="z")
    scripted.broker(MASTER, replies(0, 1, HaStatus()), name="a")

    assert [each.name for each in scripted.ask(all_replicas)] == ["a", "z"]
    assert [each.name for each in scripted.ask(lambda cluster: all_replicas(cluster, "z"))] == ["z"]
    assert scripted.ask(lambda cluster: all_replicas(cluster, "none")) == []


def test_a_broker_of_apache_s_4_has_a_log_and_no_status(scripted: ScriptedCluster) -> None:
    scripted.broker(
        MASTER,
        {
            RequestCode.GET_BROKER_RUNTIME_INFO: log(0, 900),
            RequestCode.GET_BROKER_HA_STATUS: UNSUPPORTED,
        },
    )

    (replicas,) = scripted.ask(all_replicas)

    assert replicas.members == (Replica("b", 0, MASTER, 0, 900, None),)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({RequestCode.GET_BROKER_RUNTIME_INFO: refuses(1, "no")}, "answered code 1: no"),
        ({RequestCode.GET_BROKER_RUNTIME_INFO: says({"table": {}})}, "is missing"),
        ({RequestCode.GET_BROKER_RUNTIME_INFO: says(b"<html>")}, "JSON"),
        ({RequestCode.GET_BROKER_HA_STATUS: refuses(1, "no")}, "answered code 1: no"),
        ({RequestCode.GET_BROKER_HA_STATUS: says([])}, "JSON object expected"),
    ],
)
def test_a_replica_that_does_not_answer_well_has_a_reason_and_the_others_answer(
    scripted: ScriptedCluster, broken: dict[int, Reply], why: str
) -> None:
    scripted.broker(MASTER, replies(0, 900, MASTERS_STATUS) | broken)
    scripted.broker(SLAVE, replies(0, 700, SLAVES_STATUS), broker_id=1)

    (replicas,) = scripted.ask(all_replicas)

    master, slave = replicas.members
    assert (master.start, master.end, master.status) == (None, None, None)
    assert why in master.reason
    assert (slave.end, slave.reason) == (700, "")
    assert replicas.lag(slave) is None


def test_a_replica_that_is_down_has_a_reason(scripted: ScriptedCluster) -> None:
    scripted.broker(MASTER, {}).kill()

    (replicas,) = scripted.ask(all_replicas)

    assert replicas.members[0].end is None
    assert MASTER in replicas.members[0].reason


def test_a_name_server_that_is_down_is_an_error(scripted: ScriptedCluster) -> None:
    scripted.name_server = lambda _: None

    with pytest.raises((ConnectionClosed, CallTimeout)):
        scripted.ask(all_replicas)


@pytest.mark.parametrize(
    ("master_end", "slave_end", "lag"),
    [(900, 700, 200), (900, 900, 0), (900, 950, 0), (None, 700, None), (900, None, None)],
)
def test_the_lag_of_a_slave_is_what_the_master_has_more(
    master_end: int | None, slave_end: int | None, lag: int | None
) -> None:
    slave = replica(1, slave_end)

    assert Replicas("b", (replica(0, master_end), slave)).lag(slave) == lag


def test_without_a_master_there_is_no_lag() -> None:
    slave = replica(1, 5)
    replicas = Replicas("b", (slave, replica(2, 9)))

    assert (replicas.master, replicas.lag(slave)) == (None, None)


# promotion


class Promotable:
    """A slave that is listed as master after some looks at the list."""

    def __init__(self, scripted: ScriptedCluster, looks: int) -> None:
        self.headers: list[dict[str, str]] = []
        self._scripted = scripted
        self._looks = looks
        self._listing = scripted.name_server
        scripted.broker(SLAVE, {RequestCode.PROMOTE_SLAVE: self._promote}, broker_id=1)
        scripted.name_server = self._list

    def _promote(self, request: Command) -> Answer:
        self.headers.append(request.fields)
        return request.answer(0)

    def _list(self, request: Command) -> Answer:
        if self.headers:
            self._looks -= 1
        if self._looks < 0:
            self._scripted.listed = {"b": {0: SLAVE}}
        return self._listing(request)


@pytest.mark.parametrize("looks", [0, 1, 7])
def test_a_promotion_is_done_when_the_slave_is_listed_as_master(
    scripted: ScriptedCluster, looks: int
) -> None:
    slave = Promotable(scripted, looks)

    scripted.ask(lambda cluster: promote(cluster, SLAVE, "SYNC_MASTER", fenced=True, forced=False))

    assert slave.headers == [{"role": "SYNC_MASTER", "fenced": "true", "forced": "false"}]
    assert scripted.codes("10.0.0.1:9876") == [RequestCode.GET_BROKER_CLUSTER_INFO] * (looks + 1)


def test_a_promotion_that_no_name_server_shows_in_time_is_an_error(
    scripted: ScriptedCluster,
) -> None:
    Promotable(scripted, 1 << 30)

    with pytest.raises(
        CallTimeout, match=rf"{SLAVE} was promoted, but no name server lists it as master after 60"
    ):
        scripted.ask(
            lambda cluster: promote(cluster, SLAVE, "ASYNC_MASTER", fenced=False, forced=True),
            within_s=ha.LISTED_TIMEOUT_S + 1,
        )


def test_a_slave_that_refuses_is_not_waited_for(scripted: ScriptedCluster) -> None:
    scripted.broker(
        SLAVE, {RequestCode.PROMOTE_SLAVE: refuses(1, "the master answers")}, broker_id=1
    )

    with pytest.raises(ResponseError, match="the master answers"):
        scripted.ask(
            lambda cluster: promote(cluster, SLAVE, "SYNC_MASTER", fenced=False, forced=False)
        )

    assert scripted.codes("10.0.0.1:9876") == []


def test_a_slave_that_asks_its_replicas_first_is_given_time(scripted: ScriptedCluster) -> None:
    scripted.broker(SLAVE, {RequestCode.PROMOTE_SLAVE: lambda _: None}, broker_id=1)
    waited: list[float] = []

    async def promoting(cluster: AdminClient) -> None:
        began = now_s()
        with pytest.raises(CallTimeout):
            await promote(cluster, SLAVE, "SYNC_MASTER", fenced=False, forced=False)
        waited.append(now_s() - began)

    scripted.ask(promoting)

    assert ha.PROMOTE_TIMEOUT_MS / 1000 <= waited[0] < ha.PROMOTE_TIMEOUT_MS / 1000 + 1
