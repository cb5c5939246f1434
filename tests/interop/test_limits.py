"""What Apache's mqadmin 4.9.7 shows where our servers refuse more: which setting it is, or what to
do.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache import JavaClients
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer

pytestmark = pytest.mark.interop

LIMITS = {"topicNumsMax": 9, "groupNumsMax": 1, "topicQueueNumsMax": 8}
"""A broker begins with eight topics, and with more groups than one."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RoquetBroker]:
    with RoquetNameServer() as names, RoquetBroker(names.address, properties=LIMITS) as running:
        yield running


def test_mqadmin_shows_which_limit_was_met(broker: RoquetBroker, clients: JavaClients) -> None:
    def said(words: str) -> str:
        run = clients["4.9.7-json"].run(
            "admin", broker.namesrv, *words.format(broker=broker.address).split()
        )
        (line,) = run.check()
        return f"{line['out']}{line['err']}"

    many = "queues of topic Many: 16, allowed are 8 (topicQueueNumsMax)"
    assert many in said("updateTopic -b {broker} -t Many -r 16 -w 16")
    assert "success" in said("updateTopic -b {broker} -t Last -r 8 -w 8")
    assert "topics of this broker: 10, allowed are 9 (topicNumsMax)" in said(
        "updateTopic -b {broker} -t New -r 8 -w 8"
    )
    assert "allowed are 1 (groupNumsMax)" in said("updateSubGroup -b {broker} -g New")
    for name in ("answerBytesMax", "listenPort"):
        told = (
            f"{name}: to be changed in the name server's configuration file, counts after a restart"
        )
        assert told in said(f"updateNamesrvConfig -k {name} -v 1")
    assert "request type 25 not supported" in said(
        "updateBrokerConfig -b {broker} -k topicNumsMax -v 99"
    )
