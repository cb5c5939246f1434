"""The backlogs of groups, asked of every broker; a broker that fails takes none from the others."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from roquet.admin.backlog import Backlog, QueueBacklog, backlog
from roquet.protocol.bodies.tables import queue_to_json
from roquet.protocol.json.dialect import ObjectKeys
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.handling import Answer
from tests.admin.scripted import Reply, ScriptedCluster, refuses, says

FIRST: Final = "10.0.1.1:10911"
SECOND: Final = "10.0.1.2:10911"


def at(end: int, offset: int, last_ms: int = 7) -> dict[str, int]:
    return {"brokerOffset": end, "consumerOffset": offset, "lastTimestamp": last_ms}


def stats(broker: str, *queues: dict[str, int]) -> dict[str, Any]:
    """A ConsumeStats with these queues of topic T."""
    keys = [
        json.dumps(queue_to_json(MessageQueue("T", broker, number)))
        for number in range(len(queues))
    ]
    return {"consumeTps": 0.0, "offsetTable": ObjectKeys(zip(keys, queues, strict=True))}


def queue(group: str, broker: str, number: int, end: int, offset: int) -> QueueBacklog:
    return QueueBacklog(group, MessageQueue("T", broker, number), end, offset, 7)


def broker(scripted: ScriptedCluster, address: str, name: str, groups: dict[str, Any]) -> None:
    """A broker with these groups, whose stats are as given."""

    def answer(request: Command) -> Answer:
        return says(groups[request.fields["consumerGroup"]])(request)

    table = {"subscriptionGroupTable": {each: {"groupName": each} for each in groups}}
    scripted.broker(
        address,
        {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: says(table),
            RequestCode.GET_CONSUME_STATS: answer,
        },
        name,
    )


def test_all_groups_of_all_brokers_are_asked_for(scripted: ScriptedCluster) -> None:
    broker(scripted, SECOND, "y", {"g": stats("y", at(9, 4))})
    broker(scripted, FIRST, "x", {"h": stats("x", at(5, 5)), "g": stats("x", at(8, 1), at(3, 3))})

    found = scripted.ask(backlog)

    assert found == Backlog(
        (
            queue("g", "x", 0, 8, 1),
            queue("g", "x", 1, 3, 3),
            queue("g", "y", 0, 9, 4),
            queue("h", "x", 0, 5, 5),
        ),
        (),
    )
    assert [each.lag for each in found.queues] == [7, 0, 5, 0]


def test_groups_may_be_chosen(scripted: ScriptedCluster) -> None:
    broker(scripted, FIRST, "x", {"g": stats("x", at(8, 1)), "h": stats("x", at(5, 5))})

    found = scripted.ask(lambda cluster: backlog(cluster, ["h"]))

    assert [each.group for each in found.queues] == ["h"]
    assert scripted.codes(FIRST) == [RequestCode.GET_CONSUME_STATS]


def test_a_group_that_is_ahead_of_its_queue_has_no_backlog() -> None:
    assert queue("g", "x", 0, 5, 9).lag == 0


def test_a_group_that_consumed_nothing_has_no_last_message(scripted: ScriptedCluster) -> None:
    broker(scripted, FIRST, "x", {"g": stats("x", at(5, 0, last_ms=0))})

    (found,) = scripted.ask(backlog).queues

    assert found.last_ms is None


@pytest.mark.parametrize("body", [{}, {"offsetTable": None}, {"offsetTable": {}}])
def test_a_group_without_offsets_has_no_queues(
    scripted: ScriptedCluster, body: dict[str, Any]
) -> None:
    broker(scripted, FIRST, "x", {"g": body})

    assert scripted.ask(backlog) == Backlog((), ())


def test_a_cluster_without_brokers_has_no_backlog(scripted: ScriptedCluster) -> None:
    assert scripted.ask(backlog) == Backlog((), ())


def test_without_a_master_the_slave_with_the_lowest_id_is_asked(scripted: ScriptedCluster) -> None:
    broker(scripted, FIRST, "x", {"g": stats("x", at(8, 1))})
    scripted.listed = {"x": {3: SECOND, 2: FIRST}}

    assert [each.lag for each in scripted.ask(backlog).queues] == [7]
    assert scripted.codes(SECOND) == []


BROKEN: Final[dict[str, tuple[Reply, str]]] = {
    "a refusal": (refuses(1, "no such group"), "no such group"),
    "no JSON": (says(b"<html>"), "JSON"),
    "a list": (says([]), "JSON object expected"),
    "a table of another kind": (says({"offsetTable": 5}), "JSON"),
    "a key that is no queue": (says({"offsetTable": {"T": at(1, 1)}}), ""),
    "a queue without its end": (
        says({"offsetTable": {json.dumps(queue_to_json(MessageQueue("T", "x", 0))): {}}}),
        "lastTimestamp is missing",
    ),
    "a queue whose end is a text": (
        says(stats("x", {**at(1, 1), "brokerOffset": "many"})),  # type: ignore[dict-item]
        "",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broker_that_does_not_answer_well_is_a_failure_and_the_others_are_none(
    scripted: ScriptedCluster, kind: str
) -> None:
    reply, why = BROKEN[kind]
    scripted.broker(FIRST, {RequestCode.GET_CONSUME_STATS: reply}, "x")
    broker(scripted, SECOND, "y", {"g": stats("y", at(9, 4))})

    found = scripted.ask(lambda cluster: backlog(cluster, ["g"]))

    assert found.queues == (queue("g", "y", 0, 9, 4),)
    (failure,) = found.failures
    assert failure.startswith("x: ")
    assert why in failure


def test_a_broker_that_is_down_or_has_no_address_is_a_failure(scripted: ScriptedCluster) -> None:
    scripted.broker(FIRST, {}, "x").kill()
    scripted.listed["none"] = {}

    found = scripted.ask(backlog)

    assert found.queues == ()
    assert sorted(each.partition(":")[0] for each in found.failures) == ["none", "x"]
    assert "none: the name server has no address of it" in found.failures
