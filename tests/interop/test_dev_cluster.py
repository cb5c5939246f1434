"""Apache's Java and Go clients on a cluster of the testing kit, and while a part of it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roquet.dev import Cluster
from tests.interop.apache import PATIENT, JavaClients, Session, go_client, require_go
from tests.interop.processes import SECONDS

pytestmark = pytest.mark.interop

Lines = list[dict[str, Any]]
COUNT = 8


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, slaves=1, settings={"brokerRole": "SYNC_MASTER"}) as running:
        running.create_topic("Orders", queues=2)
        yield running


def java(session: Session) -> Callable[..., Lines]:
    # A 5.x member may be refused until its next heartbeat, which is 30 s later by default.
    return lambda *words: session.run(*words, "--heartbeat", 1000).check()


def go(*words: object) -> Lines:
    return go_client(*map(str, words)).check()


def check(run: Callable[..., Lines], cluster: Cluster) -> None:
    """What both masters acknowledged is received once, after one was killed, and one paused."""
    sent = run("produce", cluster.name_server, "Orders", COUNT, *PATIENT)
    assert {line["sendStatus"] for line in sent} == {"SEND_OK"}
    assert {line["broker"] for line in sent} == {"broker-a", "broker-b"}
    cluster.kill("broker-a")
    cluster.start("broker-a")
    with cluster.pause("broker-b"):
        pass

    got = run("consume", cluster.name_server, "Orders", "G", COUNT, SECONDS)
    assert sorted(line["body"] for line in got) == sorted(f"message-{i}" for i in range(COUNT))


@pytest.mark.parametrize("kind", ["4.9.7-json", "5.5.0-binary"])
def test_javas_clients_use_it(cluster: Cluster, clients: JavaClients, kind: str) -> None:
    check(java(clients[kind]), cluster)


def test_gos_client_uses_it(cluster: Cluster) -> None:
    require_go()
    check(go, cluster)
