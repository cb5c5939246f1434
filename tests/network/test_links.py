"""Master and slaves at hosts of their own, and what links do to them; Apache's producer sends
meanwhile.

Whatever the link did, all logs and queues are the same bytes once it is good again, and every
broker gives what was acknowledged. What is not at a slave is never acknowledged. `make network` has
more kinds of outages than `make test`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.interop.apache import require_java, wait_until
from tests.network.cluster import PATIENCE_S, FarCluster, Outage, files, statuses
from tests.network.link import CUT, GOOD, Quality
from tests.network.namespaces import require_network

pytestmark = [pytest.mark.process, pytest.mark.interop]

SHORT_S = 3.0
LONG_S = 25.0
"""Longer than the 20 s of silence after which either side gives the other up."""
LARGE = ("--size", 8000, "--compress-over", 100_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FarCluster]:
    require_network()
    require_java()
    with FarCluster("near", "far") as running:
        yield running


@pytest.fixture(autouse=True)
def _good_links(cluster: FarCluster) -> None:
    cluster.links(GOOD)
    cluster.wait_same()


def test_sends_are_acknowledged_when_slaves_are_200_ms_away(cluster: FarCluster) -> None:
    cluster.links(Quality(delay_s=0.2))
    sent = cluster.produce(100, "--threads", 25)
    assert statuses(sent) == {"SEND_OK"}
    cluster.wait_same()
    cluster.assert_kept(sent)


def test_sends_are_acknowledged_when_one_packet_in_twenty_is_lost(cluster: FarCluster) -> None:
    cluster.links(Quality(loss=0.05))
    sent = cluster.produce(300, "--threads", 10, "--size", 2000)
    assert statuses(sent) == {"SEND_OK"}
    cluster.wait_same()
    cluster.assert_kept(sent)


def test_a_slave_behind_1_mb_per_s_slows_nobody_but_itself(cluster: FarCluster) -> None:
    cluster.network.link("master", "far", Quality(bytes_per_s=1e6))
    sent = cluster.produce(600, "--threads", 10, *LARGE)
    assert statuses(sent) == {"SEND_OK"}
    cluster.wait_copied(cluster.slaves["near"])
    assert files(cluster.slaves["far"]) != files(cluster.master)
    cluster.wait_same()
    cluster.assert_kept(sent)


def test_sends_go_at_the_pace_of_the_slaves_when_all_are_behind_1_mb_per_s(
    cluster: FarCluster,
) -> None:
    cluster.links(Quality(bytes_per_s=1e6))
    sent = cluster.produce(200, "--threads", 10, *LARGE)
    assert statuses(sent) == {"SEND_OK"}
    cluster.wait_same()
    cluster.assert_kept(sent)


def test_a_cut_of_3_s_ends_no_connection_and_nothing_is_acknowledged_in_it(
    cluster: FarCluster,
) -> None:
    told = len(cluster.master.errors())
    cluster.links(CUT)
    cluster.begin(40, "--threads", 20)
    healed_s = time.monotonic() + SHORT_S
    while time.monotonic() < healed_s:
        assert "SEND_OK" not in statuses(cluster.client.lines())
        time.sleep(0.05)
    cluster.links(GOOD)
    sent = cluster.client.finish().lines
    assert statuses(sent) <= {"SEND_OK", "FLUSH_SLAVE_TIMEOUT"}
    after = cluster.produce(20)
    cluster.wait_same()
    cluster.assert_kept([*sent, *after])
    assert "dropped" not in cluster.master.errors()[told:]


def test_slaves_that_nothing_is_heard_of_are_given_up_and_come_back(
    cluster: FarCluster, outages: tuple[Outage, ...]
) -> None:
    told = {broker: len(broker.errors()) for broker in cluster.cluster.brokers}
    cluster.disturb(outages)
    begin_s = time.monotonic()
    sent = cluster.produce(20, "--threads", 20)
    assert statuses(sent) == {"FLUSH_SLAVE_TIMEOUT"}

    def has_none() -> bool:
        answers = statuses(cluster.produce(1))
        assert answers <= {"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}
        return answers == {"SLAVE_NOT_AVAILABLE"}

    wait_until(has_none, "the master to give up all slaves", PATIENCE_S)
    for outage, slave in zip(outages, cluster.cluster.slaves, strict=True):
        listener = slave if outage is Outage.DEAF else cluster.master
        assert re.search(r"been silent for 2\d{4} ms", listener.errors()[told[listener] :])
    wait_until(
        lambda: time.monotonic() - begin_s >= LONG_S, "an outage longer than the silence", LONG_S
    )
    cluster.links(GOOD)
    wait_until(
        lambda: statuses(cluster.produce(1)) == {"SEND_OK"}, "a slave to be back", PATIENCE_S
    )
    after = cluster.produce(20)
    assert statuses(after) == {"SEND_OK"}
    cluster.wait_same()
    cluster.assert_kept(after)


def test_at_the_end_every_store_is_whole(cluster: FarCluster) -> None:
    cluster.assert_whole()
