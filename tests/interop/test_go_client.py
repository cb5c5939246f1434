"""Apache's Go client against our name server, SYNC_MASTER and SLAVE."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase
from typing import Any

import pytest

from tests.interop.apache import PATIENT, JavaClients, go_client, require_go
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetCluster

pytestmark = pytest.mark.interop

Lines = list[dict[str, Any]]
LARGE = 10_000
"""More than 4096, so it is compressed."""
WAYS: dict[str, tuple[object, ...]] = {
    "sync": (),
    "async": ("--async",),
    "one-way": ("--oneway",),
    "batch": ("--batch", 6),
    "large": ("--size", LARGE),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RoquetCluster]:
    require_go()
    with RoquetCluster() as running:
        yield running


def produce(cluster: RoquetCluster, topic: str, count: int, *options: object) -> Lines:
    sent = go_client("produce", cluster.namesrv, topic, count, *PATIENT, *map(str, options)).check()
    assert {line["sendStatus"] for line in sent} <= {"SEND_OK"}
    return sent


def consume(cluster: RoquetCluster, topic: str, group: str, count: int, *options: object) -> Lines:
    words = ("consume", cluster.namesrv, topic, group, count, SECONDS, *options)
    return go_client(*map(str, words)).check()


def test_it_gets_once_and_unchanged_what_it_sent(cluster: RoquetCluster) -> None:
    sent: dict[str, Lines] = {}
    for way, options in WAYS.items():
        told = (
            "--body",
            f"{way} ",
            "--tag",
            "A,B",
            "--keys",
            f"{way}-",
            "--property",
            f"colour=c{{i}},way={way}",
        )
        sent[way] = produce(cluster, "Ways", 6, *told, *options)
    assert [len(sent[way]) for way in WAYS] == [6, 6, 0, 1, 6]

    got = consume(cluster, "Ways", "G-ways", 30)
    named = {line["body"].rstrip(ascii_lowercase): line for line in got}
    assert sorted(named) == sorted(f"{way} {i}" for way in WAYS for i in range(6))
    for name, line in named.items():
        way, i = name.split(" ")[0], int(name[-1])
        assert (line["tags"], line["keys"]) == ("AB"[i % 2], f"{way}-{i}")
        assert (line["properties"]["colour"], line["properties"]["way"]) == (f"c{i}", way)
        assert (len(line["body"]), line["reconsumeTimes"]) == (
            LARGE if way == "large" else len(name),
            0,
        )
        if way in ("sync", "large"):
            same = ("msgId", "offsetMsgId", "queueId", "queueOffset")
            assert [line[name] for name in same] == [sent[way][i][name] for name in same]
    again = go_client("consume", cluster.namesrv, "Ways", "G-ways", 1, 3)
    assert (again.status, [line for line in again.lines if "body" in line]) == (1, []), (
        "the group has them all"
    )


def test_a_tag_expression_selects(cluster: RoquetCluster) -> None:
    produce(cluster, "Tags", 8, "--tag", "Aa,BB,c,d")  # "Aa" and "BB" have the same hash code.
    got = consume(cluster, "Tags", "G-tags", 4, "--tag", "Aa || c")
    assert sorted(line["tags"] for line in got) == ["Aa", "Aa", "c", "c"]


def test_an_orderly_consumer_keeps_the_order(cluster: RoquetCluster) -> None:
    produce(cluster, "Orderly", 12)
    got = consume(cluster, "Orderly", "G-orderly", 12, "--orderly")
    for queue in {line["queueId"] for line in got}:
        offsets = [line["queueOffset"] for line in got if line["queueId"] == queue]
        assert offsets == list(range(len(offsets)))


def test_go_and_java_read_each_other(cluster: RoquetCluster, clients: JavaClients) -> None:
    java, told = (
        clients["4.9.7-json"],
        ("--size", LARGE, "--tag", "T", "--keys", "k", "--property", "colour=red"),
    )
    from_go = produce(cluster, "Go", 4, *told)
    from_java = java.run("produce", cluster.namesrv, "Java", 4, *PATIENT, *told).check()
    by_java = java.run("consume", cluster.namesrv, "Go", "G-go", 4, SECONDS).check()
    by_go = consume(cluster, "Java", "G-java", 4)
    for sent, got in ((from_go, by_java), (from_java, by_go)):
        assert sorted(line["msgId"] for line in got) == sorted(line["msgId"] for line in sent)
        assert {len(line["body"]) for line in got} == {LARGE}
        assert {(line["tags"], line["properties"]["colour"]) for line in got} == {("T", "red")}
        assert sorted(line["keys"] for line in got) == [f"k{i}" for i in range(4)]
