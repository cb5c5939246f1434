"""Pulls with SQL92 filters at a whole broker: who gets what, what is refused, who is woken.

See docs/protocol/consuming.md#what-a-broker-checks.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roquet.protocol.bodies.tables import ConsumerData, Heartbeat, Subscription
from roquet.protocol.filters.tags import SQL92, TAG
from roquet.protocol.headers.pull import SUBSCRIPTION, SUSPEND, PullAnswer, PullHeader
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.records.record import decode_all
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import append_one

ALLOWED = {"enablePropertyFilter": "true"}
NOTED = {**ALLOWED, "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
FILTERS = Path("/store/config/consumerFilter.json")
USUAL = PullHeader("g", "T", 0, 0, 32, 0, 0, 15_000, None, 1, None)


class Cluster:
    """A broker and one consumer."""

    def __init__(self, sim: Simulation, **settings: object) -> None:
        self.sim = sim
        self.node = started(sim, ADDRESS, **settings)
        self.client = Client(sim, sim.host("10.0.0.9"))

    def put(self, *numbers: int) -> None:
        """Messages with the property `a` in one queue; their body is that number."""
        for number in numbers:
            assert (
                send(self.client, b"%d" % number, properties=f"a\x01{number}").code
                == ResponseCode.SUCCESS
            )

    def want(
        self, expression: str, version: int = 1, group: str = "g", kind: str = SQL92
    ) -> Command:
        data = ConsumerData(group, subscriptions=(Subscription("T", expression, version, kind),))
        return self.client.call(
            RequestCode.HEART_BEAT, dump_bytes(Heartbeat("c", (), (data,)).to_json())
        )

    def pull(self, **changes: object) -> Command:
        return self.client.call(RequestCode.PULL_MESSAGE, **replace(USUAL, **changes).write())  # type: ignore[arg-type]

    def numbers(self, **changes: object) -> list[int]:
        answer = self.pull(**changes)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
        return numbers_in(answer)

    def restart(self, *, crash: bool) -> None:
        self.node.host.kill() if crash else self.node.stop()
        self.node.start()
        self.sim.run_until(lambda: self.node.broker is not None, 10)
        self.client = Client(self.sim, self.sim.host("10.0.0.9"))


def numbers_in(answer: Command) -> list[int]:
    return [int(record.body) for record in decode_all(answer.body)]


@pytest.fixture(params=[ALLOWED, NOTED], ids=["plain", "noted"])
def cluster(sim: Simulation, request: pytest.FixtureRequest) -> Cluster:
    return Cluster(sim, **request.param)


def test_a_group_gets_what_its_filter_wants(cluster: Cluster) -> None:
    cluster.put(1, 5, 2)
    assert cluster.want("a > 3").code == ResponseCode.SUCCESS
    cluster.put(7, 3, 8)
    answer = cluster.pull()
    assert numbers_in(answer) == [5, 7, 8]
    assert PullAnswer.read(answer.fields).next_begin_offset == 6
    nothing = cluster.pull(queue_offset=2, max_msg_nums=1)
    assert numbers_in(nothing) == [7]
    assert cluster.pull(queue_offset=5).code == ResponseCode.SUCCESS


def test_what_nobody_wants_is_passed_over(cluster: Cluster) -> None:
    cluster.want("a > 30")
    cluster.put(1, 2)
    answer = cluster.pull()
    assert (answer.code, answer.remark) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
    )
    assert PullAnswer.read(answer.fields).next_begin_offset == 2


def test_a_pull_may_bring_its_own_filter(cluster: Cluster) -> None:
    cluster.put(1, 5)
    own = {"sys_flag": SUBSCRIPTION, "expression_type": SQL92}
    assert cluster.numbers(subscription="a > 3", **own) == [5]
    wrong = cluster.pull(subscription="a > 'x'", **own)
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (
        wrong.remark
        == "filter expression, position 5: > compares numbers and properties, found text 'x'"
    )
    unknown = cluster.pull(subscription="a", sys_flag=SUBSCRIPTION, expression_type="XPATH")
    assert unknown.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_heartbeat_whose_filter_is_wrong_is_refused_with_the_place_and_all_others_in_it_are_taken(
    cluster: Cluster,
) -> None:
    cluster.put(1)
    right = ConsumerData("h", subscriptions=(Subscription("T", "a = 1", 1, SQL92),))
    wrong = ConsumerData("g", subscriptions=(Subscription("T", "a > > 3", 1, SQL92),))
    answer = cluster.client.call(
        RequestCode.HEART_BEAT, dump_bytes(Heartbeat("c", ("p",), (wrong, right)).to_json())
    )
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark is not None
    assert answer.remark.startswith("filter expression, position 5: expected a value")
    assert answer.remark.endswith("(g wants T)")
    assert cluster.numbers(consumer_group="h") == [1]
    assert cluster.pull().code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert serving(cluster.node).parts.tables.producers.channel_of("c") is not None


def test_a_filter_that_the_broker_does_not_know_yet_is_not_guessed(cluster: Cluster) -> None:
    assert cluster.pull().code == ResponseCode.TOPIC_NOT_EXIST
    cluster.put(1)
    assert cluster.pull().code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    cluster.want("a = 1", version=5)
    assert cluster.pull(sub_version=6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert cluster.numbers(sub_version=5) == [1]
    cluster.want("a = ?", version=7)
    assert cluster.pull(sub_version=7).code == ResponseCode.FILTER_DATA_NOT_EXIST
    cluster.want("a = 1", version=6)
    assert cluster.pull(sub_version=7).code == ResponseCode.FILTER_DATA_NOT_LATEST


def test_a_changed_filter_counts_from_the_next_pull_on(cluster: Cluster) -> None:
    cluster.want("a = 1")
    cluster.put(1, 2)
    assert cluster.numbers() == [1]
    cluster.want("a = 2", version=2)
    assert cluster.numbers() == [2]
    cluster.want("*", version=3, kind=TAG)
    assert cluster.numbers() == [1, 2]


def test_without_the_setting_other_filters_than_tags_are_refused(sim: Simulation) -> None:
    cluster = Cluster(sim)
    cluster.put(1)
    remark = "this broker does not filter by SQL92; enablePropertyFilter=true in its configuration allows it"
    assert cluster.want("a = 1").code == ResponseCode.SUCCESS
    for answer in (
        cluster.pull(),
        cluster.pull(sys_flag=SUBSCRIPTION, subscription="a = 1", expression_type=SQL92),
        check(cluster.client, "a = 1", SQL92),
    ):
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert check(cluster.client, "x", TAG).code == ResponseCode.SUCCESS


def test_a_client_may_ask_before_whether_its_filter_is_served(cluster: Cluster) -> None:
    assert check(cluster.client, "a = 1", SQL92).code == ResponseCode.SUCCESS
    wrong = check(cluster.client, "a = 1 OR", SQL92)
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert wrong.remark is not None
    assert wrong.remark.startswith("filter expression, position 9: expected a value")


def check(client: Client, expression: str, kind: str) -> Command:
    subscription = Subscription("T", expression, 1, kind).to_json()
    body = dump_bytes({"clientId": "c", "group": "g", "subscriptionData": subscription})
    return client.call(RequestCode.CHECK_CLIENT_CONFIG, body)


# long polling


class Held:
    """A pull that waits, and its answer once there is one."""

    def __init__(self, cluster: Cluster, **changes: object) -> None:
        self.answer: Command | None = None
        self.sim = cluster.sim
        client = cluster.client
        header = replace(USUAL, sys_flag=SUSPEND, **changes)  # type: ignore[arg-type]

        async def pull() -> None:
            request = Command(RequestCode.PULL_MESSAGE, header.write())
            self.answer = await client.channels.call(client.broker, request, 30_000)

        client.host.start(pull)
        self.sim.run_for(0.1)
        assert self.answer is None


@pytest.mark.parametrize(("kind", "expression"), [(SQL92, "a > 3"), (TAG, "x")])
def test_a_held_pull_is_woken_by_what_it_wants_and_by_nothing_else(
    cluster: Cluster, kind: str, expression: str
) -> None:
    send(cluster.client, b"1", properties="a\x011")
    cluster.want(expression, kind=kind)
    held = Held(cluster, queue_offset=1)
    for number in (2, 3, 1):
        send(cluster.client, b"%d" % number, properties=f"a\x01{number}")
    cluster.sim.run_for(0.1)
    assert held.answer is None
    for number in (4, 5):
        send(cluster.client, b"%d" % number, properties=f"a\x01{number}\x02TAGS\x01x")
    cluster.sim.run_for(0.1)
    assert held.answer is not None
    assert numbers_in(held.answer) == [4]
    assert PullAnswer.read(held.answer.fields).next_begin_offset == 5


def test_a_held_pull_goes_by_what_its_group_wants_when_it_is_woken(cluster: Cluster) -> None:
    """Also for what it passed over before, which the group wants now."""
    cluster.put(1)
    cluster.want("a > 3")
    held = Held(cluster, queue_offset=1)
    cluster.put(2)
    cluster.sim.run_for(0.1)
    assert held.answer is None
    cluster.want("a < 3", version=2)
    cluster.put(7)
    cluster.sim.run_for(0.1)
    assert held.answer is not None
    assert numbers_in(held.answer) == [2]


def test_a_held_pull_moves_on_with_the_next_sweep_past_what_it_does_not_want(
    cluster: Cluster,
) -> None:
    cluster.put(1)
    cluster.want("a > 3")
    held = Held(cluster, queue_offset=1)
    cluster.put(1, 2, 3)
    cluster.sim.run_for(5.1)
    assert held.answer is not None
    assert held.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert PullAnswer.read(held.answer.fields).next_begin_offset == 4


def test_a_held_pull_sees_a_wanted_message_behind_more_than_one_fetch_looks_at(
    sim: Simulation,
) -> None:
    cluster = Cluster(
        sim, **ALLOWED, mapedFileSizeConsumeQueue=20 * 10_000, mapedFileSizeCommitLog=1 << 20
    )
    cluster.put(1)
    cluster.want("a > 3")
    held = Held(cluster, queue_offset=1)
    broker = serving(cluster.node)

    async def store_many() -> None:
        queue = broker.store.queue("T", 0)
        for number in [1] * 2000 + [4]:
            append_one(broker.store, queue, b"%d" % number, b"a\x01%d" % number)
        broker.parts.turn.due()

    cluster.node.host.call(store_many)
    cluster.sim.run_for(0.1)
    assert held.answer is not None
    assert numbers_in(held.answer) == [4]


def test_a_held_pull_that_nothing_came_for_is_answered_after_its_time(cluster: Cluster) -> None:
    cluster.put(1)
    cluster.want("a > 3")
    held = Held(cluster, queue_offset=1, suspend_timeout_millis=6000)
    cluster.sim.run_for(10.1)
    assert held.answer is not None
    assert held.answer.code == ResponseCode.PULL_NOT_FOUND
    assert PullAnswer.read(held.answer.fields).next_begin_offset == 1


# retries, restarts, members that disagree


def test_the_retry_topic_is_filtered_by_the_messages_own_topic_if_that_is_set(
    sim: Simulation,
) -> None:
    cluster = Cluster(sim, **ALLOWED, filterSupportRetry="true")
    cluster.put(1)
    retries = Subscription("%RETRY%g", "TRUE", 1, SQL92)
    data = ConsumerData("g", subscriptions=(Subscription("T", "a > 3", 1, SQL92), retries))
    cluster.client.call(RequestCode.HEART_BEAT, dump_bytes(Heartbeat("c", (), (data,)).to_json()))
    broker = serving(cluster.node)

    async def come_again() -> None:
        queue = broker.store.queue("%RETRY%g", 0)
        for number in (1, 4):
            append_one(broker.store, queue, b"%d" % number, b"a\x01%d\x02RETRY_TOPIC\x01T" % number)

    cluster.node.host.call(come_again)
    assert cluster.numbers(topic="%RETRY%g") == [4]


@pytest.mark.parametrize("crash", [False, True])
def test_filters_come_through_a_restart_and_wait_for_their_group(
    cluster: Cluster, *, crash: bool
) -> None:
    cluster.want("a > 3")
    cluster.put(1, 5)
    cluster.sim.run_for(12)
    born_ms = saved(cluster.node)["bornTime"]
    cluster.restart(crash=crash)
    assert cluster.pull().code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    cluster.put(2, 6)
    cluster.want("a > 3")
    assert cluster.numbers() == [5, 6]
    cluster.sim.run_for(12)
    data = saved(cluster.node)
    assert (data["dead"], data["deadTime"]) == (False, 0)
    assert (data["bornTime"] > born_ms) is crash


def saved(node: BrokerNode) -> dict[str, Any]:
    """The filter of the group, as it is on the drive."""
    data: dict[str, Any] = load(node.host.disk.read(FILTERS) or b"{}")["filterDataByTopic"]["T"][
        "groupFilterData"
    ]["g"]
    return data


def test_a_group_that_leaves_is_saved_as_dead(cluster: Cluster) -> None:
    cluster.put(1)
    cluster.want("a > 3")
    cluster.sim.run_for(1)
    left_ms = cluster.node.host.now_ms()
    cluster.client.close()
    cluster.sim.run_for(12)
    assert saved(cluster.node)["dead"] is True
    assert left_ms <= saved(cluster.node)["deadTime"] <= left_ms + 1000


def test_notes_are_used_although_the_clock_went_back(sim: Simulation) -> None:
    """A filter is then younger than the messages before it, whose notes know nothing of it."""
    cluster = Cluster(sim, **NOTED)
    cluster.want("FALSE", group="first")
    cluster.node.host.clock_ahead_ms = 60_000
    cluster.put(5)
    cluster.node.host.clock_ahead_ms = 0
    cluster.put(6)
    cluster.want("a > 3")
    cluster.put(7)
    assert cluster.numbers() == [5, 6, 7]


def test_members_that_want_different_things_are_told_of_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    other = Client(cluster.sim, cluster.sim.host("10.0.0.8"))

    def want(client: Client, name: str, expression: str, version: int) -> list[str]:
        caplog.clear()
        data = ConsumerData("g", subscriptions=(Subscription("T", expression, version, SQL92),))
        client.call(RequestCode.HEART_BEAT, dump_bytes(Heartbeat(name, (), (data,)).to_json()))
        return [
            record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
        ]

    assert want(cluster.client, "c", "a > 3", 1) == want(other, "d", "a > 3", 2) == []
    (warning,) = want(other, "d", "a > 4", 3)
    assert warning.endswith("c wants SQL92 'a > 3' of T, d SQL92 'a > 4'")
    assert want(other, "d", "a > 4", 3) == want(cluster.client, "c", "a > 3", 1) == []
    assert len(want(cluster.client, "c", "a > 5", 4)) == 1
    assert want(cluster.client, "c", "a > 4", 5) == []
    cluster.sim.run_for(61)  # of one host it is told once a minute
    assert len(want(other, "d", "a > 3", 6)) == 1
