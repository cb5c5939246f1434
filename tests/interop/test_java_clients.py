"""Apache's Java clients and mqadmin against our name server, SYNC_MASTER and SLAVE.

The tests share one cluster; those that stop or kill a part of it stand at the end and leave it
whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from roquet.protocol.json.dialect import load
from tests.interop import wire
from tests.interop.apache import PATIENT, JavaClients, Session, Version, start_driver, wait_until
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import BROKER, CLUSTER, RoquetBroker, RoquetCluster

pytestmark = pytest.mark.interop

Lines = list[dict[str, Any]]
KINDS = JavaClients.KINDS
ONE_OF_EACH = ("4.9.7-json", "5.5.0-binary")
LINGER = ("--linger", 700)
"""Long enough for a message that comes once too often to be seen."""
OFTEN = ("--heartbeat", 1_000)
"""A 5.x consumer that shares out queues while its heartbeat is under way does not tell brokers of
the change before the next one; until then they refuse its pulls."""
LOCK_SECONDS = 60
"""So long a broker keeps a lock that is not given back."""
MIB = 1024 * 1024
WAYS: dict[str, tuple[object, ...]] = {
    "sync": (),
    "async": ("--async",),
    "one-way": ("--oneway",),
    "batch": ("--batch", 6),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RoquetCluster]:
    with RoquetCluster() as running:
        running.create_topic("Survives", 4)  # It takes a while until the slave knows it.
        yield running


def named(what: str, kind: str) -> str:
    """A topic that no other client uses."""
    return f"{what}-{kind.replace('.', '-')}"


def consume(
    client: Session,
    cluster: RoquetCluster,
    topic: str,
    group: str,
    count: int,
    *options: object,
    seconds: int = SECONDS,
) -> Lines:
    """Exactly so many deliveries, and no more for a while."""
    words = ("consume", cluster.namesrv, topic, group, count, seconds, *LINGER, *OFTEN, *options)
    lines = client.run(*words).check()
    assert len(lines) == count, Counter(line["body"][:40] for line in lines).most_common(3)
    return lines


def produce(
    client: Session, cluster: RoquetCluster, topic: str, count: int, *options: object
) -> Lines:
    """Every answer says that the slave has the message."""
    sent = client.run("produce", cluster.namesrv, topic, count, *PATIENT, *options).check()
    assert {line["sendStatus"] for line in sent} <= {"SEND_OK"}
    return sent


def bodies(lines: Lines) -> list[str]:
    return sorted(line["body"] for line in lines)


# every way of sending, every client


@pytest.fixture(scope="module")
def sent(cluster: RoquetCluster, clients: JavaClients) -> dict[str, dict[str, Any]]:
    """What every client sent in every way: the result for each body, as far as there is one."""
    results: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        for way, options in WAYS.items():
            name = f"{kind} {way} "
            told = (
                "--tag",
                "A,B",
                "--keys",
                f"{kind}-{way}-",
                "--property",
                f"colour=c{{i}},from={name}",
                "--flag",
                7,
            )
            lines = produce(clients[kind], cluster, "Ways", 6, "--body", name, *told, *options)
            if way == "batch":
                (line,) = lines
                offset_ids = line["offsetMsgId"].split(",")
                places = enumerate(
                    zip(line["msgId"].split(","), offset_ids, strict=True), line["queueOffset"]
                )
                lines = [
                    line | {"msgId": i, "offsetMsgId": o, "queueOffset": at}
                    for at, (i, o) in places
                ]
            results |= {f"{name}{i}": {} for i in range(6)}
            if way != "async":  # Their results come in any order.
                results |= {f"{name}{i}": line for i, line in enumerate(lines)}
            else:
                assert len(lines) == 6
    return results


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_gets_once_and_unchanged_what_every_client_sent(
    cluster: RoquetCluster, clients: JavaClients, sent: dict[str, dict[str, Any]], kind: str
) -> None:
    got = consume(clients[kind], cluster, "Ways", named("G-ways", kind), len(sent))
    assert bodies(got) == sorted(sent)
    assert len({line["msgId"] for line in got}) == len(sent)
    for line in got:
        name, i = line["body"][:-1], int(line["body"][-1])
        assert (line["tags"], line["keys"]) == (
            "AB"[i % 2],
            f"{name.strip().replace(' ', '-')}-{i}",
        )
        assert (line["properties"]["colour"], line["properties"]["from"]) == (f"c{i}", name)
        assert (line["topic"], line["flag"], line["reconsumeTimes"], line["delivery"]) == (
            "Ways",
            7,
            0,
            1,
        )
        assert line["storeHost"] == f"/{cluster.master.address}"
        result = sent[line["body"]]
        same = ("msgId", "offsetMsgId", "broker", "queueId", "queueOffset")
        assert not result or [line[name] for name in same] == [result[name] for name in same]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_expression_selects(cluster: RoquetCluster, clients: JavaClients, kind: str) -> None:
    topic = named("Tags", kind)
    produce(
        clients[kind], cluster, topic, 8, "--tag", "Aa,BB,c,d"
    )  # "Aa" and "BB" have the same hash code.
    got = consume(clients[kind], cluster, topic, f"G-{topic}", 4, "--tag", "Aa || c")
    assert sorted(line["tags"] for line in got) == ["Aa", "Aa", "c", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_large_and_compressed_bodies(
    cluster: RoquetCluster, clients: JavaClients, kind: str
) -> None:
    client, topic = clients[kind], named("Large", kind)
    produce(
        client, cluster, topic, 1, "--body", "raw", "--size", 4 * MIB, "--compress-over", 5 * MIB
    )
    produce(client, cluster, topic, 1, "--body", "zip", "--size", 100_000)
    raw, zipped = sorted(
        consume(client, cluster, topic, f"G-{topic}", 2), key=lambda line: line["body"][:3]
    )
    assert raw["body"] == body("raw0", 4 * MIB)
    assert zipped["body"] == body("zip0", 100_000)
    assert zipped["storeSize"] < 5_000 < 4 * MIB < raw["storeSize"]

    too_large = ("--size", 4 * MIB + 1, "--max-size", 5 * MIB, "--compress-over", 5 * MIB, *PATIENT)
    refused = client.run("produce", cluster.namesrv, topic, 1, *PATIENT, "--retry", 0, *too_large)
    assert [line["code"] for line in refused.lines] == [13]


def body(start: str, size: int) -> str:
    """What the driver makes of a body that is to have a size."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return start + (letters * (size // 26 + 2))[len(start) : size]


@pytest.mark.parametrize("kind", KINDS)
def test_an_orderly_consumer_keeps_the_order_and_gives_its_locks_back(
    cluster: RoquetCluster, clients: JavaClients, kind: str
) -> None:
    client, topic = clients[kind], named("Orderly", kind)
    for first in (0, 24):
        produce(client, cluster, topic, 24, "--body", f"from {first} ")
        got = consume(
            client, cluster, topic, f"G-{topic}", 24, "--orderly", seconds=LOCK_SECONDS - 20
        )
        for queue in {line["queueId"] for line in got}:
            offsets = [line["queueOffset"] for line in got if line["queueId"] == queue]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert sorted(line["body"] for line in got) == sorted(
            f"from {first} {i}" for i in range(24)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_queues_are_read_and_searched_without_a_group(
    cluster: RoquetCluster, clients: JavaClients, kind: str
) -> None:
    client, topic = clients[kind], named("Read", kind)
    cluster.create_topic(topic, 4)
    first, *_ = produce(client, cluster, topic, 8, "--queue", 2, "--keys", "who", "--tag", "T")
    produce(client, cluster, topic, 1)
    state, *found = client.run("pull", cluster.namesrv, topic, 2, 3, 4).check()
    assert (state["status"], state["nextBeginOffset"], state["minOffset"]) == ("FOUND", 7, 0)
    assert [line["body"] for line in found] == [f"message-{i}" for i in range(3, 7)]

    queues = client.run("offsets", cluster.namesrv, topic, "--timestamp", 0).check()
    assert sum(line["maxOffset"] for line in queues) == 9
    assert {line["searched"] for line in queues} == {0}

    for message_id in (first["offsetMsgId"], first["msgId"]):
        (seen,) = client.run("view", cluster.namesrv, topic, message_id).check()
        assert (seen["body"], seen["keys"], seen["tags"]) == ("message-0", "who0", "T")
    (seen,) = client.run("query", cluster.namesrv, topic, "who5").check()
    assert (seen["body"], seen["queueOffset"]) == ("message-5", 5)

    got = client.run("lite", cluster.namesrv, topic, f"G-{topic}", 9, SECONDS).check()
    assert len({line["msgId"] for line in got}) == len(got) == 9


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_a_broadcast_reaches_every_consumer(
    cluster: RoquetCluster, clients: JavaClients, kind: str
) -> None:
    topic = named("Broadcast", kind)
    produce(clients[kind], cluster, topic, 6)
    for name in ("one", "two"):
        got = consume(
            clients[kind], cluster, topic, f"G-{topic}", 6, "--broadcast", "--instance", name
        )
        assert bodies(got) == [f"message-{i}" for i in range(6)]


# groups


def test_two_consumers_share_the_queues_until_one_leaves(
    cluster: RoquetCluster, clients: JavaClients
) -> None:
    """Members of both releases; every message is taken, and once except while a queue changes
    hands.
    """
    namesrv, topic, group = cluster.namesrv, "Shared", "G-shared"
    leaves, producer = clients["5.5.0-binary"], clients["4.9.7-binary"]
    count = 0

    def send_until(condition: Callable[[], bool]) -> None:
        """However long a loaded machine takes to start a consumer, or to tell it of another one."""
        nonlocal count
        while not condition():
            assert count < 10_000
            count += len(produce(producer, cluster, topic, 48, "--pause", 15))

    cluster.create_topic(topic, 8)
    stays = start_driver(
        Version.V4, "consume", namesrv, topic, group, 100_000, 600, java_options=["-Xmx128m"]
    )
    with stays:
        send_until(lambda: queues_of(stays.lines()) == ALL)
        leaves.begin("consume", namesrv, topic, group, 100, SECONDS, *OFTEN)
        send_until(lambda: len(leaves.lines()) >= 100)
        gone = by_birth(leaves.finish().check())
        since = gone[-1]["bornTimestamp"]
        send_until(lambda: queues_of(born(stays.lines(), since)) == ALL)
        wait_until(
            lambda: len({line["msgId"] for line in [*stays.lines(), *gone]}) == count,
            "all messages",
        )
        kept = stays.lines()

    together = gone[-48:-16]  # Neither when it had just come, nor when it was about to leave.
    meanwhile = born(kept, together[0]["bornTimestamp"], together[-1]["bornTimestamp"])
    assert len(queues_of(together)) == len(queues_of(meanwhile)) == 4
    assert queues_of(together) | queues_of(meanwhile) == ALL
    assert len(kept) + len(gone) < count + 16


ALL = set(range(8))


def by_birth(lines: Lines) -> Lines:
    return sorted(lines, key=lambda line: line["bornTimestamp"])


def born(lines: Lines, after: int, until: float = inf) -> Lines:
    return [line for line in lines if after < line["bornTimestamp"] <= until]


def queues_of(lines: Lines) -> set[int]:
    return {line["queueId"] for line in lines}


# mqadmin


def test_mqadmin(cluster: RoquetCluster, clients: JavaClients) -> None:
    client, topic, group, master = clients["4.9.7-json"], "Admin", "G-admin", cluster.master.address

    def admin(*words: object) -> str:
        (line,) = client.run("admin", cluster.namesrv, *words).check()
        assert "Exception" not in line["err"], line["err"]
        return str(line["out"])

    def rows(*words: object) -> list[list[str]]:
        return [line.split() for line in admin(*words).splitlines()]

    assert {tuple(row[:4]) for row in rows("clusterList")[1:]} >= {
        (CLUSTER, BROKER, "0", master),
        (CLUSTER, BROKER, "1", cluster.slave.address),
    }
    assert [CLUSTER, BROKER] in [row[:2] for row in rows("clusterList", "-m")]

    assert "success" in admin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", 3, "-w", 3)
    assert "success" in admin("updateSubGroup", "-c", CLUSTER, "-g", group, "-r", 5)
    assert topic in admin("topicList").split()
    route = admin("topicRoute", "-t", topic)
    assert master in route
    assert cluster.slave.address in route
    assert '"writeQueueNums":3' in route.replace(" ", "")

    sent = produce(client, cluster, topic, 9, "--keys", "invoice", "--tag", "T")
    consume(client, cluster, topic, group, 9)
    status = [row for row in rows("topicStatus", "-t", topic) if row and row[0] == BROKER]
    assert [row[1:4] for row in status] == [[str(queue), "0", "3"] for queue in range(3)]
    assert ["commitLogMinOffset", ":", "0"] in rows("brokerStatus", "-b", master)
    progress = admin("consumerProgress", "-g", group)
    assert "Diff Total: 0" in progress
    assert group in [row[0] for row in rows("consumerProgress") if row]

    assert sent[4]["msgId"] in admin("queryMsgByKey", "-t", topic, "-k", "invoice4")
    assert sent[4]["msgId"] in admin("queryMsgByUniqueKey", "-t", topic, "-i", sent[4]["msgId"])
    assert "invoice4" in admin("queryMsgById", "-i", sent[4]["offsetMsgId"])

    settings = admin("getBrokerConfig", "-b", master)
    assert ["brokerRole", "=", "SYNC_MASTER"] in [line.split() for line in settings.splitlines()]

    assert "success" in admin("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert topic not in admin("topicList").split()
    assert not wire.has_topic(cluster.namesrv, topic)


# what survives


def test_groups_go_on_where_they_were_after_a_stop_and_after_a_crash(
    cluster: RoquetCluster, clients: JavaClients
) -> None:
    topics = {kind: named("Again", kind) for kind in ONE_OF_EACH}

    def eight_more(start: str) -> None:
        for kind, topic in topics.items():
            produce(clients[kind], cluster, topic, 8, "--body", start)
            got = consume(clients[kind], cluster, topic, f"G-{topic}", 8)
            assert bodies(got) == [f"{start}{i}" for i in range(8)]

    eight_more("first ")
    cluster.master.stop()
    cluster.master.start()
    cluster.wait_replicated()
    eight_more("after a stop ")
    wait_until(
        lambda: {progress_of(cluster.master, topic) for topic in topics.values()} == {16},
        "progress on disk",
    )
    cluster.master.kill()
    cluster.master.start()
    cluster.wait_replicated()
    eight_more("after a crash ")


def progress_of(broker: RoquetBroker, topic: str) -> int:
    """How many messages of the topic its group has behind it, by the broker's file."""
    saved = broker.state("consumerOffset")
    table = load(saved)["offsetTable"] if saved else {}
    return sum(table.get(f"{topic}@G-{topic}", {}).values())


def test_consumption_goes_on_from_our_slave_when_our_master_is_killed(
    cluster: RoquetCluster, clients: JavaClients
) -> None:
    """The consumer takes few messages ahead, so most are still to be read when the master dies."""
    topic, count = "Survives", 100
    old, new = clients["4.9.7-json"], clients["5.5.0-binary"]
    produce(old, cluster, topic, count)
    wait_until(lambda: topic in cluster.slave.state("topics"), "the slave's copy of the topic")
    slow = ("--cache", 2, "--pull-batch", 1, "--threads", 1, "--pause", 80, "--poll", 500)
    for client, group in ((new, "G-new"), (old, "G-old")):
        client.begin("consume", cluster.namesrv, topic, group, count + 4, SECONDS, *slow, *OFTEN)
        client.wait_lines(5)
    cluster.master.kill()
    assert max(len(client.lines()) for client in (old, new)) < count - 20, (
        "too late: one of them has nearly all"
    )
    for client in (old, new):
        client.wait_lines(count)
    cluster.master.start()
    cluster.wait_replicated()
    produce(clients["4.9.7-binary"], cluster, topic, 4, "--body", "back ")
    for client in (old, new):
        got = client.finish().check()
        assert bodies(got) == sorted(
            [*(f"message-{i}" for i in range(count)), *(f"back {i}" for i in range(4))]
        )
