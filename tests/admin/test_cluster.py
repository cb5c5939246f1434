"""Name servers and brokers are asked, and what they answer is read or refused."""

from __future__ import annotations

import pytest

from roquet.errors import AccessDenied, CallTimeout, ConnectionClosed, ResponseError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.protocol.bodies.tables import BrokerData
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.admin.scripted import ScriptedCluster, refuses, says

BROKER = "10.0.1.1:10911"
CODE = RequestCode.GET_BROKER_RUNTIME_INFO


def test_brokers_are_those_that_the_name_server_lists(scripted: ScriptedCluster) -> None:
    scripted.listed = {"a": {0: "10.0.1.1:10911", 2: "10.0.1.2:10911"}, "b": {}}

    found = scripted.ask(lambda cluster: cluster.brokers())

    assert found == {"a": BrokerData("C", "a", scripted.listed["a"]), "b": BrokerData("C", "b", {})}
    assert found["a"].master == "10.0.1.1:10911"
    assert found["b"].master is None


def test_an_empty_cluster_has_no_brokers(scripted: ScriptedCluster) -> None:
    assert scripted.ask(lambda cluster: cluster.brokers()) == {}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"brokerAddrTable":5}'])
def test_a_name_server_s_answer_that_is_no_list_is_refused(
    scripted: ScriptedCluster, body: bytes
) -> None:
    scripted.name_server = says(body)

    with pytest.raises(ValueError, match=r"JSON|expected|position|character|empty|input"):
        scripted.ask(lambda cluster: cluster.brokers())


def test_a_refusal_has_the_broker_s_code_reason_and_address(scripted: ScriptedCluster) -> None:
    scripted.broker(BROKER, {CODE: refuses(ResponseCode.SYSTEM_ERROR, "not now")})

    with pytest.raises(ResponseError) as refused:
        scripted.ask(lambda cluster: cluster.ask(BROKER, CODE))

    assert (refused.value.code, refused.value.remark, refused.value.address) == (
        ResponseCode.SYSTEM_ERROR, "not now", BROKER,
    )  # fmt: skip


def test_a_denial_says_what_to_do(scripted: ScriptedCluster) -> None:
    remark = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
    scripted.broker(BROKER, {CODE: refuses(ResponseCode.SYSTEM_ERROR, remark)})

    with pytest.raises(AccessDenied, match="give credentials"):
        scripted.ask(lambda cluster: cluster.ask(BROKER, CODE))


def test_fields_are_sent_and_the_answer_is_returned(scripted: ScriptedCluster) -> None:
    scripted.broker(BROKER, {CODE: says(b"body", remark="fine")})

    answer = scripted.ask(lambda cluster: cluster.ask(BROKER, CODE, {"group": "g"}))

    assert (answer.body, answer.remark) == (b"body", "fine")
    ((address, request),) = scripted.requests
    assert (address, request.code, request.fields) == (BROKER, CODE, {"group": "g"})


def test_a_broker_that_is_not_there_is_an_error(scripted: ScriptedCluster) -> None:
    scripted.broker(BROKER, {}).kill()

    with pytest.raises((ConnectionClosed, CallTimeout)):
        scripted.ask(lambda cluster: cluster.ask(BROKER, CODE))


def test_a_broker_that_does_not_answer_is_waited_for_as_long_as_was_said(
    scripted: ScriptedCluster,
) -> None:
    scripted.broker(BROKER, {CODE: lambda _: None})

    with pytest.raises(CallTimeout):
        scripted.ask(lambda cluster: cluster.ask(BROKER, CODE, timeout_ms=700), within_s=1)


def test_a_body_is_read_as_the_type_that_is_asked_for(scripted: ScriptedCluster) -> None:
    table = {"commitLogMinOffset": "5", "commitLogMaxOffset": "9"}
    scripted.broker(BROKER, {CODE: says({"table": table})})

    found = scripted.ask(lambda cluster: cluster.ask_for(BROKER, CODE, LogRange.from_json))

    assert found == LogRange(5, 9)


@pytest.mark.parametrize("body", [{}, {"table": {}}, {"table": 5}])
def test_a_body_without_its_members_is_refused(scripted: ScriptedCluster, body: object) -> None:
    scripted.broker(BROKER, {CODE: says(body)})

    with pytest.raises(ValueError, match="JSON"):
        scripted.ask(lambda cluster: cluster.ask_for(BROKER, CODE, LogRange.from_json))
