"""Apache's brokers at our name server, and our broker at Apache's name servers; Apache's clients
find no difference.
"""

from __future__ import annotations

import pytest

from tests.interop import wire
from tests.interop.apache import (
    PATIENT,
    ApacheBroker,
    ApacheNameServer,
    JavaClients,
    Version,
    wait_until,
)
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", Version)
def test_a_broker_of_apache_at_our_name_server(clients: JavaClients, version: Version) -> None:
    with RoquetNameServer() as names, ApacheBroker(names.address, version=version) as broker:
        served(clients, broker)
        if version is Version.V4:  # The other one takes 18 s to stop.
            broker.stop()
            assert not wire.has_broker(names.address, broker.address), "it says goodbye"
        else:
            broker.kill()
            wait_until(
                lambda: not wire.has_broker(names.address, broker.address),
                "the end of its connection",
            )


@pytest.mark.parametrize("version", Version)
def test_our_broker_at_a_name_server_of_apache(clients: JavaClients, version: Version) -> None:
    with ApacheNameServer(version=version) as names, RoquetBroker(names.address) as broker:
        served(clients, broker)
        broker.stop()
        assert not wire.has_broker(names.address, broker.address), "it says goodbye"
        broker.start()
        broker.kill()
        wait_until(
            lambda: not wire.has_broker(names.address, broker.address), "the end of its connection"
        )


def served(clients: JavaClients, broker: ApacheBroker | RoquetBroker) -> None:
    """Topics are made, found, filled, read, shown and deleted."""
    old, new, names = clients["4.9.7-json"], clients["5.5.0-binary"], broker.namesrv
    (made,) = old.run(
        "admin", names, "updateTopic", "-b", broker.address, "-t", "Made", "-r", 3, "-w", 3
    ).check()
    assert "success" in made["out"], made
    for topic in ("Made", "ByItself"):
        sent = [
            line
            for client in (old, new)
            for line in client.run("produce", names, topic, 6, *PATIENT).check()
        ]
        assert {line["sendStatus"] for line in sent} == {"SEND_OK"}
        assert {line["queueId"] for line in sent} == set(range(3 if topic == "Made" else 4))
        for client, group in ((old, "G-old"), (new, "G-new")):
            words = (
                "consume",
                names,
                topic,
                f"{group}-{topic}",
                12,
                SECONDS,
                "--heartbeat",
                1_000,
                "--linger",
                300,
            )
            got = client.run(*words).check()
            assert sorted(line["msgId"] for line in got) == sorted(line["msgId"] for line in sent)

    (clusters,) = old.run("admin", names, "clusterList").check()
    assert broker.address in clusters["out"]
    (progress,) = old.run("admin", names, "consumerProgress", "-g", "G-new-Made").check()
    assert "Diff Total: 0" in progress["out"]
    (deleted,) = old.run(
        "admin", names, "deleteTopic", "-c", cluster_of(broker), "-t", "Made"
    ).check()
    assert "success" in deleted["out"], deleted
    assert not wire.has_topic(names, "Made")
    assert wire.has_topic(names, "ByItself")


def cluster_of(broker: ApacheBroker | RoquetBroker) -> str:
    return (
        "DefaultCluster"
        if isinstance(broker, ApacheBroker)
        else str(broker.properties["brokerClusterName"])
    )
