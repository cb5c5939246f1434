"""Transactions between Apache's producers and our broker, ours and Apache's broker, and over both
with one store.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop import wire
from tests.interop.apache import (
    PATIENT,
    ApacheNameServer,
    JavaClients,
    Version,
    go_client,
    require_go,
    require_java,
    start_driver,
    wait_until,
)
from tests.interop.place import SHARED, Broker, Lines, Place, assert_no_complaints
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic
from tests.interop.stored import log_queues

pytestmark = pytest.mark.interop

HALF, ENDS, GIVEN_UP = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
QUICK: dict[str, str | int] = {"transactionTimeOut": 2000, "transactionCheckInterval": 1000}
"""Producers are asked often, and soon, but not before one on a busy machine has said what it
wants.
"""
ASKED = ("--linger", 6000, "--heartbeat", 500)
"""A producer stays for longer than a broker needs to ask."""


@pytest.fixture(scope="module")
def name_server() -> Iterator[RoquetNameServer]:
    require_java()
    with RoquetNameServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker(name_server: RoquetNameServer) -> Iterator[RoquetBroker]:
    with RoquetBroker(name_server.address, properties=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def apaches_name_server() -> Iterator[ApacheNameServer]:
    """Brokers that make topics by themselves do not share one: a new topic would be on all of
    them.
    """
    require_java()
    with ApacheNameServer() as server:
        yield server


@pytest.fixture
def place(apaches_name_server: ApacheNameServer, clients: JavaClients, tmp_path: Path) -> Place:
    return Place(
        apaches_name_server.address, tmp_path / "store", clients["4.9.7-json"], SHARED | QUICK
    )


def consumed(
    clients: JavaClients, namesrv: str, topic: str, count: int, kind: str = "4.9.7-json"
) -> list[str]:
    """The bodies that a new group gets: just so many messages, and no more for a while."""
    words = ("consume", namesrv, topic, f"G-{topic}", count, 60, "--linger", 2500)
    lines = clients[kind].run(*words).check()
    return sorted(line["body"] for line in lines)


def transact(
    clients: JavaClients, kind: str, namesrv: str, topic: str, body: str, *options: object
) -> Lines:
    return (
        clients[kind]
        .run("produce", namesrv, topic, 2, "--body", body, "--timeout", 20_000, *options)
        .check()
    )


def bodies(broker: Broker, topic: str, queue_id: int = 0) -> list[str]:
    """What a queue in the broker's store has, oldest first; nothing before the first message."""
    if not (broker.store_dir / "commitlog").is_dir():
        return []
    stored = log_queues(broker.store_dir).get((topic, queue_id), {})
    return [stored[offset].text for offset in sorted(stored)]


# Apache's producers at our broker


def test_what_java_producers_commit_is_delivered_and_nothing_else(
    broker: RoquetBroker, clients: JavaClients
) -> None:
    """All kinds at the same time, for most of it is waiting."""

    def live_through(kind: str) -> None:
        topic, namesrv = f"Tx-{kind.replace('.', '-')}", broker.namesrv
        group = ("--group", f"P-{topic}")
        for verdict in "commit", "rollback":
            transact(clients, kind, namesrv, topic, f"{verdict}-", "--transaction", verdict, *group)
        for later in "commit", "rollback":
            options = ("--transaction", "unknown", "--check", later, *group, *ASKED)
            lines = transact(clients, kind, namesrv, topic, f"late-{later}-", *options)
            asked = [line for line in lines if "checked" in line]
            assert sorted(line["body"] for line in asked) == [f"late-{later}-0", f"late-{later}-1"]
            assert {line["topic"] for line in asked} == {topic}
        got = consumed(clients, namesrv, topic, 4, kind)
        assert got == ["commit-0", "commit-1", "late-commit-0", "late-commit-1"]

    with ThreadPoolExecutor(len(JavaClients.KINDS)) as threads:
        for each in [threads.submit(live_through, kind) for kind in JavaClients.KINDS]:
            each.result()


def test_transactions_of_the_go_client(broker: RoquetBroker, clients: JavaClients) -> None:
    require_go()
    for verdict in "commit", "rollback":
        options = ("--transaction", verdict, "--body", f"{verdict}-")
        assert go_client("transact", broker.namesrv, "TxGo", 2, *options).status == 0
    assert consumed(clients, broker.namesrv, "TxGo", 2) == ["commit-0", "commit-1"]


def test_another_producer_of_the_group_is_asked_when_one_has_died(
    broker: RoquetBroker, clients: JavaClients
) -> None:
    words = (
        "produce",
        broker.namesrv,
        "TxDied",
        2,
        *PATIENT,
        "--body",
        "orphan-",
        "--transaction",
        "unknown",
    )
    with start_driver(
        Version.V4, *words, "--check", "unknown", "--group", "P-died", "--linger", 60_000
    ) as producer:
        producer.wait_ready(
            lambda: bodies(broker, HALF).count("orphan-1") >= 1, "the half messages are stored"
        )
        producer.kill()
    heir = ("--transaction", "commit", "--check", "commit", "--group", "P-died", *ASKED)
    lines = transact(clients, "4.9.7-json", broker.namesrv, "TxDied", "heir-", *heir)
    assert {"orphan-0", "orphan-1"} <= {line["body"] for line in lines if "checked" in line}
    assert consumed(clients, broker.namesrv, "TxDied", 4) == [
        "heir-0",
        "heir-1",
        "orphan-0",
        "orphan-1",
    ]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_producer_is_asked_after_the_broker_was_restarted(
    end: str, name_server: RoquetNameServer, clients: JavaClients
) -> None:
    topic = f"TxRestart-{end}"
    with RoquetBroker(
        name_server.address, name="roquet-b", properties=QUICK | {"transactionTimeOut": 4000}
    ) as broker:
        create_topic(broker, topic, 4)
        options = (
            "--transaction",
            "unknown",
            "--check",
            "commit",
            "--group",
            topic,
            "--heartbeat",
            500,
        )
        words = (
            "produce",
            broker.namesrv,
            topic,
            2,
            *PATIENT,
            "--body",
            "open-",
            *options,
            "--linger",
            60_000,
        )
        transact(
            clients,
            "4.9.7-json",
            broker.namesrv,
            topic,
            "done-",
            "--transaction",
            "commit",
            "--group",
            topic,
        )
        with start_driver(Version.V4, *words) as producer:
            producer.wait_ready(
                lambda: "open-1" in bodies(broker, HALF), "the half messages are stored"
            )
            (broker.stop if end == "stop" else broker.kill)()
            broker.start()
            assert consumed(clients, broker.namesrv, topic, 4) == [
                "done-0",
                "done-1",
                "open-0",
                "open-1",
            ]
            producer.kill()


def test_what_nobody_answers_for_is_given_up_and_can_be_resumed(
    name_server: RoquetNameServer, clients: JavaClients
) -> None:
    few = QUICK | {"transactionCheckMax": 2}
    with RoquetBroker(name_server.address, name="roquet-c", properties=few) as broker:
        topic, group = "TxGivenUp", ("--group", "P-given-up")
        create_topic(broker, topic, 4)
        transact(
            clients,
            "4.9.7-json",
            broker.namesrv,
            topic,
            "open-",
            "--transaction",
            "unknown",
            *group,
        )
        wait_until(lambda: len(bodies(broker, GIVEN_UP)) == 2, "two messages that were given up")
        given_up = log_queues(broker.store_dir)[GIVEN_UP, 0]
        assert {each.properties["TRANSACTION_CHECK_TIMES"] for each in given_up.values()} == {"2"}
        one = next(each for each in given_up.values() if each.text == "open-1")
        assert wire.ask(broker.address, 323, {"msgId": one.offset_message_id}).code == 0
        options = ("--transaction", "rollback", "--check", "commit", *group, *ASKED)
        lines = transact(clients, "4.9.7-json", broker.namesrv, topic, "other-", *options)
        assert {line["body"] for line in lines if "checked" in line} == {"open-1"}
        assert consumed(clients, broker.namesrv, topic, 1) == ["open-1"]


# one store, both brokers


def test_either_broker_asks_about_what_the_other_left_open(place: Place) -> None:
    group = ("--group", "P")
    patient = {"transactionTimeOut": 600_000}
    with place.apaches(**patient) as apaches:
        place.produce("Kinds", 2, "--body", "done-", "--transaction", "commit", *group)
        place.produce("Kinds", 2, "--body", "theirs-", "--transaction", "unknown", *group)
        apaches.stop()
    with place.ours() as ours:
        lines = place.produce(
            "Kinds",
            1,
            "--body",
            "a-",
            "--transaction",
            "commit",
            "--check",
            "commit",
            *group,
            *ASKED,
        )
        assert sorted(line["body"] for line in lines if "checked" in line) == [
            "theirs-0",
            "theirs-1",
        ]
        ours.kill()
    with place.ours(**patient) as ours:
        place.produce("Kinds", 2, "--body", "ours-", "--transaction", "unknown", *group)
        assert sorted(bodies(ours, ENDS)) == sorted(set(bodies(ours, ENDS))), "each ends once"
        ours.stop()
    with place.apaches() as apaches:
        lines = place.produce(
            "Kinds",
            1,
            "--body",
            "b-",
            "--transaction",
            "commit",
            "--check",
            "commit",
            *group,
            *ASKED,
        )
        assert {line["body"] for line in lines if "checked" in line} == {"ours-0", "ours-1"}
        got = place.takes("Kinds", "G", 8)
        assert sorted(line["body"] for line in got) == [
            *("a-0", "b-0", "done-0", "done-1", "ours-0", "ours-1", "theirs-0", "theirs-1")
        ]
        assert_no_complaints(apaches)


def test_what_a_java_producer_ends_at_the_other_broker_is_ended_there(place: Place) -> None:
    """A question that our broker asked is answered to Apache's: it accepts what ours wrote."""
    options = ("--transaction", "unknown", "--check", "unknown", "--group", "P", "--heartbeat", 500)
    words = (
        "produce",
        place.namesrv,
        "Kinds",
        1,
        *PATIENT,
        "--body",
        "open-",
        *options,
        "--linger",
        60_000,
    )
    with place.ours() as ours:
        with start_driver(Version.V4, *words) as producer:
            producer.wait_ready(lambda: len(bodies(ours, HALF)) >= 3, "two questions were asked")
            producer.kill()
        ours.kill()
    with place.apaches() as apaches:
        lines = place.produce(
            "Kinds",
            1,
            "--body",
            "a-",
            "--transaction",
            "commit",
            "--check",
            "commit",
            "--group",
            "P",
            *ASKED,
        )
        asked = [line for line in lines if "checked" in line]
        assert "open-0" in {line["body"] for line in asked}
        assert sorted(line["body"] for line in place.takes("Kinds", "G", 2)) == ["a-0", "open-0"]
        assert_no_complaints(apaches, "Maybe try to build consume queue repeatedly")
