"""Sending back what a group could not deal with, at a whole broker on virtual time.

See docs/broker/retries.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from roquet.protocol.bodies.tables import GroupConfig
from roquet.protocol.records.message import READ_WRITE, SCHEDULE_TOPIC
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command, decode
from tests.broker.harness import ADDRESS, BROKER, Client
from tests.broker.served import SEND, arrived, bodies, send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

FRAMES = sorted((Path(__file__).parents[2] / "golden" / "frames").rglob("36-*.request.bin"))
RETRY, DEAD = "%RETRY%g", "%DLQ%g"

T = TypeVar("T")


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS)


@pytest.fixture
def client(sim: Simulation, node: BrokerNode) -> Client:
    return Client(sim, sim.host("10.0.0.9"))


def stored(
    node: BrokerNode, client: Client, properties: str = "UNIQ_KEY\x01U\x02TAGS\x01a\x02WAIT\x01true"
) -> Record:
    """A message in the log."""
    assert send(client, b"body", properties=properties).code == 0
    return arrived(node)[-1]


def change(node: BrokerNode, work: Callable[[], T]) -> T:
    """Do something inside the broker's process."""

    async def do() -> T:
        return work()

    return node.host.call(do)


def change_group(node: BrokerNode, **settings: Any) -> None:
    change(node, lambda: serving(node).parts.tables.groups.update(GroupConfig("g", **settings)))


def send_back(
    client: Client, record: Record | int, group: str = "g", level: int = 0, **more: Any
) -> Command:
    at = record if isinstance(record, int) else record.physical_offset
    fields = {"offset": at, "group": group, "delayLevel": level, "maxReconsumeTimes": 16, **more}
    return client.call(RequestCode.CONSUMER_SEND_MSG_BACK, b"", **fields)


def test_a_message_comes_again_in_its_groups_topic_after_ten_seconds(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    first = stored(node, client)
    assert send_back(client, first).code == 0
    sim.run_for(9.9)
    assert arrived(node, RETRY) == []
    sim.run_for(0.3)
    (again,) = arrived(node, RETRY)
    same = ("body", "flag", "sys_flag", "born_ms", "born_host", "store_host")
    assert [getattr(again, name) for name in same] == [getattr(first, name) for name in same]
    assert again.reconsume_times == 1
    assert again.properties == {
        "UNIQ_KEY": "U",
        "TAGS": "a",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": first.offset_message_id,
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }


def test_the_second_time_it_names_its_first_topic_and_id_still_and_waits_a_level_longer(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    first = stored(node, client)
    send_back(client, first)
    sim.run_for(10.2)
    send_back(client, arrived(node, RETRY)[0])
    sim.run_for(29.9)
    assert len(arrived(node, RETRY)) == 1
    sim.run_for(0.3)
    again = arrived(node, RETRY)[1]
    assert (again.reconsume_times, again.properties["DELAY"]) == (2, "4")
    assert again.properties["RETRY_TOPIC"] == "T"
    assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id


def test_a_consumer_may_say_how_long_it_waits(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    send_back(client, stored(node, client), level=1)
    sim.run_for(1.2)
    assert len(arrived(node, RETRY)) == 1


@pytest.mark.parametrize(("level", "tries_max"), [(-1, 16), (0, 0), (5, 0)])
def test_what_shall_not_come_again_is_a_dead_letter_at_once(
    sim: Simulation, node: BrokerNode, client: Client, level: int, tries_max: int
) -> None:
    first = stored(node, client)
    assert send_back(client, first, level=level, maxReconsumeTimes=tries_max).code == 0
    (dead,) = arrived(node, DEAD)
    assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"body", 1, "0")
    assert (dead.properties["RETRY_TOPIC"], dead.properties["ORIGIN_MESSAGE_ID"]) == (
        "T",
        first.offset_message_id,
    )
    topic = serving(node).parts.tables.topics.topics[DEAD]
    assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, READ_WRITE)
    sim.run_for(60)
    assert arrived(node, RETRY) == arrived(node, SCHEDULE_TOPIC) == []


def test_without_a_word_of_the_consumers_the_groups_maximum_counts(
    node: BrokerNode, client: Client
) -> None:
    change_group(node, retry_max_times=0)
    at = stored(node, client).physical_offset
    fields: dict[str, Any] = {"offset": at, "group": "g", "delayLevel": 0}
    assert client.call(RequestCode.CONSUMER_SEND_MSG_BACK, b"", **fields).code == 0
    assert len(arrived(node, DEAD)) == 1


def test_the_word_of_a_consumer_before_3_4_9_does_not_count(
    node: BrokerNode, client: Client
) -> None:
    at = stored(node, client).physical_offset
    fields = {"offset": str(at), "group": "g", "delayLevel": "0", "maxReconsumeTimes": "0"}
    old = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields, version=120)
    assert client.host.call(lambda: client.channels.call(BROKER, old, 3000)).code == 0
    assert arrived(node, DEAD) == []
    assert len(arrived(node, SCHEDULE_TOPIC, 2)) == 1


def test_each_of_sixteen_retries_waits_a_level_longer_and_then_there_is_no_more(
    sim: Simulation,
) -> None:
    """With Apache's levels that takes 4 hours and 45 minutes
    (docs/protocol/producing.md#delay-levels).
    """
    node = started(
        sim, ADDRESS, messageDelayLevel=" ".join(f"{seconds}s" for seconds in range(1, 19))
    )
    client = Client(sim, sim.host("10.0.0.9"))
    record = stored(node, client)
    waited_s = []
    for times in range(1, 17):
        began_s = sim.now_s
        send_back(client, record)
        sim.run_until(lambda times=times: len(arrived(node, RETRY)) == times, 20)  # type: ignore[misc]
        record = arrived(node, RETRY)[-1]
        waited_s.append(round(sim.now_s - began_s))
    assert waited_s == [*range(3, 19)]
    send_back(client, record)
    assert [dead.reconsume_times for dead in arrived(node, DEAD)] == [17]


@pytest.mark.parametrize("offset", [-1, 1, 10**15])
def test_what_is_no_message_is_refused(node: BrokerNode, client: Client, offset: int) -> None:
    stored(node, client)
    answer = send_back(client, offset)
    assert (answer.code, answer.remark) == (1, f"no message at physical offset {offset}")


def test_a_group_that_may_not_be_made_is_refused(sim: Simulation) -> None:
    node = started(sim, ADDRESS, autoCreateSubscriptionGroup="false")
    client = Client(sim, sim.host("10.0.0.9"))
    answer = send_back(client, stored(node, client))
    assert (answer.code, answer.remark) == (26, "consumer group g does not exist")


def test_a_broker_that_may_not_be_written_to_takes_nothing_back(sim: Simulation) -> None:
    node = started(sim, ADDRESS, brokerPermission=4)
    client = Client(sim, sim.host("10.0.0.9"))
    assert send_back(client, stored(node, client)).code == 16
    assert arrived(node, SCHEDULE_TOPIC, 2) == []


def test_a_retry_topic_that_may_not_be_written_to_takes_nothing_back(
    node: BrokerNode, client: Client
) -> None:
    topics = serving(node).parts.tables.topics
    topic = change(node, lambda: topics.retry_topic(GroupConfig("g")))
    assert topic is not None
    change(node, lambda: topics.update(replace(topic, perm=4)))
    assert send_back(client, stored(node, client)).code == 16


def test_a_group_without_retry_queues_lets_go_of_what_failed(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    change_group(node, retry_queues=0)
    end = stored(node, client).physical_offset
    assert send_back(client, end, level=-1).code == 0
    assert RETRY not in serving(node).parts.tables.topics.topics
    assert DEAD not in serving(node).parts.tables.topics.topics


def test_a_retry_goes_to_any_of_the_groups_retry_queues(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    change_group(node, retry_queues=3)
    record = stored(node, client)
    for _ in range(60):
        send_back(client, record, level=1)
    sim.run_for(1.2)
    counts = [len(arrived(node, RETRY, queue_id)) for queue_id in range(3)]
    assert sum(counts) == 60
    assert min(counts) > 5


def test_a_message_from_a_delay_waits_as_long_as_a_retry_does(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    stored_properties = "UNIQ_KEY\x01U\x02DELAY\x011"
    send(client, b"body", properties=stored_properties)
    sim.run_for(1.1)
    (record,) = arrived(node)
    send_back(client, record)
    sim.run_for(9.8)
    assert arrived(node, RETRY) == []
    sim.run_for(0.4)
    (again,) = arrived(node, RETRY)
    assert (again.properties["REAL_TOPIC"], again.properties["DELAY"]) == (RETRY, "3")


def test_a_slave_takes_nothing_back(sim: Simulation) -> None:
    master = started(sim, ADDRESS)
    client = Client(sim, sim.host("10.0.0.9"))
    at = stored(master, client)
    started(sim, "10.0.0.2", brokerRole="SLAVE", brokerId=1)
    slave = Client(sim, sim.host("10.0.0.9"), "10.0.0.2:10911")
    assert send_back(slave, at).code == 14


def test_the_answer_waits_until_the_copy_is_on_disk(sim: Simulation) -> None:
    node = started(sim, ADDRESS, flushDiskType="SYNC_FLUSH")
    client = Client(sim, sim.host("10.0.0.9"))
    record = stored(node, client)
    assert send_back(client, record).code == 0
    assert serving(node).store.log.flushed_to == serving(node).store.log.end


def test_a_master_without_the_slave_it_should_have_takes_it_back_all_the_same(
    sim: Simulation,
) -> None:
    """For an error clients would store a second copy, which has no slave either."""
    node = started(sim, ADDRESS, brokerRole="SYNC_MASTER")
    client = Client(sim, sim.host("10.0.0.9"))
    assert send(client, b"body").code == 11
    assert send_back(client, arrived(node)[0], level=1).code == 0
    sim.run_for(1.1)
    assert bodies(node, RETRY) == [b"body"]


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_apaches_clients_send_back_is_taken_as_by_apache(
    node: BrokerNode, client: Client, path: Path
) -> None:
    request = decode(path.read_bytes()[4:])
    golden = decode(path.with_name(path.name.replace(".request.", ".response.")).read_bytes()[4:])
    request.fields["offset"] = str(stored(node, client).physical_offset)
    answer = client.host.call(lambda: client.channels.call(BROKER, request, 3000))
    if golden.code == 0:
        assert (answer.code, answer.remark, answer.fields) == (0, golden.remark, {})
    assert answer.code == 0


# sends to a retry topic


def send_again(
    client: Client, times: int, times_max: int, properties: str = "DELAY\x011"
) -> Command:
    fields = {**SEND, "b": RETRY, "e": 0, "i": properties, "j": times, "l": times_max}
    return client.call(RequestCode.SEND_MESSAGE_V2, b"body", **fields)


def test_a_retry_that_a_client_sends_itself_waits(
    sim: Simulation, node: BrokerNode, client: Client
) -> None:
    assert send_again(client, 15, 16).code == 0
    assert arrived(node, RETRY) == []
    sim.run_for(1.1)
    assert [record.reconsume_times for record in arrived(node, RETRY)] == [15]


def test_a_retry_too_many_is_a_dead_letter_without_delay(node: BrokerNode, client: Client) -> None:
    assert send_again(client, 16, 16).code == 0
    (dead,) = arrived(node, DEAD)
    assert (dead.reconsume_times, dead.properties["DELAY"]) == (16, "0")


@pytest.mark.parametrize("tries", [-3, -7, -(2**31)])
def test_who_counts_tries_from_below_zero_gets_it_again_at_once(
    sim: Simulation, node: BrokerNode, client: Client, tries: int
) -> None:
    assert (
        client.call(
            RequestCode.SEND_MESSAGE_V2, b"body", **{**SEND, "b": "T", "e": 0, "i": "", "j": tries}
        ).code
        == 0
    )
    assert send_back(client, arrived(node)[-1]).code == 0
    sim.run_for(0.1)
    places = [
        (queue.topic, queue.queue_id) for queue in serving(node).store.queues if queue.max_offset
    ]
    assert places == [("T", 0), (RETRY, 0)]
    assert arrived(node, RETRY)[0].reconsume_times == tries + 1
